"""Where users are listed, added and deleted: in a cluster that runs, or in its metadata store."""

from __future__ import annotations

import asyncio
import secrets
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Protocol

from barnabas.cli.common.failures import Failed
from barnabas.machines.security.scram import ScramCredential
from barnabas.machines.security.scram_salts import SALT_BITS, salt_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence

    from barnabas.clients.admin.users import Users
    from barnabas.machines.security.scram import ScramMechanism
    from barnabas.metadata.stores.store import MetadataStore


class UserPlace(Protocol):
    """What can be done with users."""

    def users(self) -> Mapping[str, Mapping[str, int]]:
        """All users, with the iterations of each mechanism."""
        ...

    def add(self, name: str, mechanism: ScramMechanism, password: str, iterations: int) -> None:
        """Add a user, or change its password."""
        ...

    def delete(self, name: str, mechanisms: Sequence[ScramMechanism]) -> None:
        """Delete a user, or one of its mechanisms."""
        ...


class RunningCluster:
    """The users of a cluster, through its brokers."""

    def __init__(self, users: Users) -> None:
        self._users = users

    def users(self) -> Mapping[str, Mapping[str, int]]:
        """All users, with the iterations of each mechanism."""
        return {user.name: user.mechanisms for user in self._users.describe()}

    def add(self, name: str, mechanism: ScramMechanism, password: str, iterations: int) -> None:
        """Add a user, or change its password."""
        self._users.add(name, mechanism, password, iterations)

    def delete(self, name: str, mechanisms: Sequence[ScramMechanism]) -> None:
        """Delete those of the mechanisms that the user has."""
        known = self.users().get(name, {})
        wanted = [mechanism for mechanism in mechanisms if mechanism.title in known]
        if not wanted:
            raise _nobody(name, mechanisms)
        self._users.delete(name, wanted)


class Tree:
    """The users in a metadata store, whether or not brokers run."""

    def __init__(self, open_store: Callable[[], MetadataStore]) -> None:
        self._open_store = open_store

    def users(self) -> Mapping[str, Mapping[str, int]]:
        """All users, with the iterations of each mechanism."""
        from barnabas.metadata.users import load_users

        found: Mapping[str, Mapping[str, int]] = self._run(load_users)
        return found

    def add(self, name: str, mechanism: ScramMechanism, password: str, iterations: int) -> None:
        """Add a user, or change its password."""
        from barnabas.metadata.users import add_user

        salt = salt_of(secrets.randbits(SALT_BITS))
        credential = ScramCredential.of_password(mechanism, password, salt, iterations)
        self._run(lambda store: add_user(store, name, mechanism, credential))

    def delete(self, name: str, mechanisms: Sequence[ScramMechanism]) -> None:
        """Delete those of the mechanisms that the user has."""
        from barnabas.metadata.users import delete_user

        if not self._run(lambda store: delete_user(store, name, mechanisms)):
            raise _nobody(name, mechanisms)

    def _run(self, work: Callable[[MetadataStore], Awaitable[Any]]) -> Any:
        async def run() -> Any:
            async with self._store() as store:
                return await work(store)

        return asyncio.run(run())

    @asynccontextmanager
    async def _store(self) -> AsyncIterator[MetadataStore]:
        """The store, with what every cluster's tree has: the first broker finds it as another would leave it."""
        from barnabas.broker.controller.membership import new_id
        from barnabas.metadata.layout import lay_out

        store = self._open_store()
        await store.start()
        try:
            await lay_out(store, new_id)
            yield store
        finally:
            await store.close()


def _nobody(name: str, mechanisms: Sequence[ScramMechanism]) -> Failed:
    return Failed(f"There is no user {name} that logs in by {' or '.join(each.title for each in mechanisms)}.")
