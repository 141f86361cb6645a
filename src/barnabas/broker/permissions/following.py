"""The rules follow the metadata tree: every broker reads ACLs itself, and reads again what others have changed.

All ACLs are read when the broker starts, when it has a new session with the store, and when another controller was
elected: the one before may have died between a change and the note of it. Otherwise notes say what to read
(`metadata/acls`). If the tree cannot be read, for whatever reason, the last rules stay in force and it is tried again
every second; a broker that has never read it does not start.

A node that cannot be read concerns its pattern only. The ACLs that this broker last read of it stay in force; where it
has none, only super users may do anything, since what cannot be read may be a denial. The node is read again every
second, as whoever mends it by hand leaves no note.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import TYPE_CHECKING, Final

from barnabas.machines.security.authorizer import NOBODY
from barnabas.metadata.acls import AclChanges, AclChangesNode, AclNode, lay_out
from barnabas.metadata.stores.store import StoreError
from barnabas.metadata.znodes import MalformedNode

if TYPE_CHECKING:
    from collections.abc import Collection

    from barnabas.broker.permissions.access import Permissions
    from barnabas.machines.security.acls import ResourcePattern
    from barnabas.machines.security.authorizer import Acls, Authorizer
    from barnabas.metadata.acls import Found
    from barnabas.metadata.images.cache import Delta
    from barnabas.metadata.stores.store import MetadataStore

logger = logging.getLogger(__name__)

_RETRY_SECONDS: Final = 1.0


class AclFollower:
    """Keeps one broker's rules as the metadata tree has them."""

    def __init__(self, permissions: Permissions) -> None:
        self._permissions = permissions
        self._changes = AclChanges()
        self._store: MetadataStore | None = None
        self._changed = asyncio.Event()
        """Set when the tree may have other ACLs."""
        self._one_at_a_time = asyncio.Lock()
        self._following: asyncio.Task[None] | None = None

    async def open(self, store: MetadataStore) -> None:
        """Follow the tree in a new session. The first time everything is read at once; raises StoreError then."""
        is_first = self._store is None
        self._store = store
        self._changes.forget()
        for path in (AclChangesNode.literal, AclChangesNode.extended):
            store.watch(path, self._changed.set)
        self._changed.set()
        if is_first:
            await lay_out(store)
            await self.catch_up()
            logger.info("%d ACLs are in force.", len(self._permissions.rules))
            self._following = asyncio.create_task(self._follow(), name="ACLs")

    async def stop(self) -> None:
        """Follow the tree no more."""
        if self._following is not None:
            self._following.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._following

    def on_change(self, delta: Delta) -> None:
        """Read everything again when there is another controller."""
        if delta.before.controller_epoch != delta.after.controller_epoch:
            self.reload()

    def reload(self) -> None:
        """Read everything again, soon."""
        self._changes.forget()
        self._changed.set()

    async def catch_up(self) -> None:
        """Judge by what the tree has now. Raises StoreError."""
        store = self._store
        assert store is not None
        async with self._one_at_a_time:
            unreadable = self._changes.unreadable
            try:
                found, is_all = await self._changes.read(store)
                rules = self._permissions.rules
                acls = _in_force(found, rules, unreadable)
                if is_all:
                    self._permissions.replace(rules.with_acls(acls))
                elif any(rules.entries(pattern) != entries for pattern, entries in acls.items()):
                    self._permissions.replace(rules.changed(acls))
            except StoreError:
                raise
            except Exception:
                self._changes.forget()  # what was read may not be in force
                raise

    async def _follow(self) -> None:
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_RETRY_SECONDS if self._changes.unreadable else None):
                    await self._changed.wait()
            self._changed.clear()
            try:
                await self.catch_up()
            except StoreError as error:
                logger.warning(
                    "The ACLs could not be read. The last ones stay in force. It is tried again in %g s: %s",
                    _RETRY_SECONDS,
                    error,
                )
            except Exception:  # whoever follows no more judges by old rules, and nobody notices
                logger.exception(
                    "The ACLs could not be read. The last ones stay in force. It is tried again in %g s.",
                    _RETRY_SECONDS,
                )
            else:
                continue
            await asyncio.sleep(_RETRY_SECONDS)
            self._changed.set()


def _in_force(found: Found, rules: Authorizer, unreadable: Collection[ResourcePattern]) -> Acls:
    """What was read, and for what cannot be read the last ACLs; `unreadable` are the patterns that could not before."""
    acls: Acls = {}
    for pattern, entries in found.items():
        if not isinstance(entries, MalformedNode):
            acls[pattern] = entries
            if pattern in unreadable:
                logger.info("The ACLs of %s can be read again.", AclNode.path(pattern))
            continue
        last = rules.entries(pattern)
        acls[pattern] = last or NOBODY
        if pattern not in unreadable:
            logger.error(
                "ACLs cannot be read. %s until the node is mended or deleted: %s",
                "The last ones of this resource stay in force" if last else "Only super users get this resource",
                entries,
            )
    return acls
