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
    """Let a user log in by a mechanism; what else is kept of the user stays, whoever else changes it meanwhile."""
    added = {mechanism.title: credential.encode()}
    await config_changes.edit(store, ConfigResource.user(name), lambda kept: {**kept, **added})


async def delete_user(store: MetadataStore, name: str, mechanisms: Iterable[ScramMechanism]) -> list[ScramMechanism]:
    """Let a user log in by these mechanisms no more; gives those that it could."""
    gone = list(mechanisms)
    removed: list[ScramMechanism] = []

    def remove(kept: dict[str, str]) -> dict[str, str] | None:
        removed[:] = [mechanism for mechanism in gone if kept.pop(mechanism.title, None) is not None]
        return kept if removed else None

    await config_changes.edit(store, ConfigResource.user(name), remove)
    return removed
