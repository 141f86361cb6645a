"""Users that log in by SCRAM, as the tree holds them: for whoever has the tree and no broker.

That is how the first user comes into a cluster: before any broker runs, by whoever may write the metadata store.
Brokers that run read it from the note that is left for them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.machines.controller.image import ConfigResource
from barnabas.machines.security.scram import BY_TITLE, InvalidCredential, ScramCredential
from barnabas.metadata import config_changes
from barnabas.metadata.images.loading import load_configs

if TYPE_CHECKING:
    from collections.abc import Iterable

    from barnabas.machines.security.scram import ScramMechanism
    from barnabas.metadata.stores.store import MetadataStore


async def load_users(store: MetadataStore) -> dict[str, dict[str, int]]:
    """All users by name, with the iterations of each mechanism that they can log in by."""
    users: dict[str, dict[str, int]] = {}
    for resource, kept in (await load_configs(store)).items():
        if resource.kind == "users" and kept is not None and (titles := BY_TITLE.keys() & kept):
            users[resource.name] = {title: _iterations(kept[title], BY_TITLE[title]) for title in sorted(titles)}
    return dict(sorted(users.items()))


def _iterations(text: str, mechanism: ScramMechanism) -> int:
    try:
        return ScramCredential.decode(text, mechanism).iterations
    except InvalidCredential:
        return -1


async def add_user(store: MetadataStore, name: str, mechanism: ScramMechanism, credential: ScramCredential) -> None:
    """Let a user log in by a mechanism; what else is kept of the user stays."""
    resource = ConfigResource.user(name)
    kept = (await load_configs(store, [resource]))[resource] or {}
    await config_changes.write(store, {resource: {**kept, mechanism.title: credential.encode()}})


async def delete_user(store: MetadataStore, name: str, mechanisms: Iterable[ScramMechanism]) -> list[ScramMechanism]:
    """Let a user log in by these mechanisms no more; gives those that it could."""
    resource = ConfigResource.user(name)
    kept = dict((await load_configs(store, [resource]))[resource] or {})
    removed = [mechanism for mechanism in mechanisms if kept.pop(mechanism.title, None) is not None]
    if removed:
        await config_changes.write(store, {resource: kept})
    return removed
