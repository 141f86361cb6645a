"""What becomes of logs that were set aside: removed when the metadata tree says so, and otherwise kept.

Every log that is not this broker's any more comes this way, whoever said so: the image that it read, the controller's
messages, its own decision in office. It is set aside first (`storage/strays`), which loses nothing. Then the tree is
asked (`metadata/deletions`), again and again while it cannot be reached. What it does not condemn stays, for an
operator to look at; and the tree is asked again now and then, since a topic may be deleted later.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import TYPE_CHECKING, Final

from barnabas.metadata.deletions import Replica, recorded, removable
from barnabas.metadata.store import StoreError
from barnabas.model.ids import NO_ID, TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable, Collection
    from concurrent.futures import Executor
    from uuid import UUID

    from barnabas.metadata.store import MetadataStore
    from barnabas.storage.manager import LogManager
    from barnabas.storage.strays import Stray

logger = logging.getLogger(__name__)

_RETRY: Final = 1.0
"""Seconds until the tree is asked again that could not be reached, or does not know yet what this broker was told."""
_ATTEMPTS: Final = 10
_LATER: Final = 600.0
"""Seconds until it is asked again about what is kept."""


class Strays:
    """Decides about them, in a task that lives while there are any."""

    def __init__(
        self,
        broker_id: int,
        logs: LogManager,
        store: Callable[[], MetadataStore],
        executor: Executor,
        *,
        in_office: Callable[[], bool] = lambda: False,
    ) -> None:
        self._broker_id = broker_id
        self._logs = logs
        self._store = store
        self._executor = executor
        self.in_office = in_office
        """Whether what the image says was decided by this broker itself."""
        self._told: set[str] = set()
        """Paths of those that this broker was told to remove, or decided to, because their partitions moved."""
        self._named: set[str] = set()
        """Paths of those that the log has named as kept."""
        self._noted: set[str] = set()
        """Paths of those whose offsets were noted."""
        self._noticed = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._settled = asyncio.Event()
        self._settled.set()

    def came(self, stray: Stray | None, *, told: bool) -> None:
        """A log was set aside just now; `told` if it is because its partition moved to others."""
        if stray is not None and told:
            self._told.add(stray.path)
        self.look()

    def look(self) -> None:
        """Ask the tree about whatever is set aside."""
        if not self._logs.strays():
            return
        self._settled.clear()
        self._noticed.set()
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._run(), name="strays")

    async def recorded_as_deleted(self, topic_ids: Collection[UUID]) -> set[UUID]:
        """Which topics the tree says were deleted; none if it cannot be asked now."""
        try:
            return await recorded(self._store(), [each for each in topic_ids if each != NO_ID])
        except StoreError as error:
            logger.warning("the metadata tree cannot be asked which topics were deleted: %s", error)
            return set()

    async def settled(self) -> None:
        """Wait until the tree was asked about everything that is set aside."""
        await self._settled.wait()

    async def stop(self) -> None:
        """Decide nothing more."""
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
        self._settled.set()

    async def _run(self) -> None:
        attempts, failed = 0, False
        while strays := self._logs.strays():
            self._noticed.clear()
            try:
                await self._decide(strays)
                failed = False
            except StoreError as error:
                if not failed:
                    logger.warning("%d logs stay aside until the metadata tree can be asked: %s", len(strays), error)
                failed = True
            attempts += 1
            asked = {each.path for each in strays}  # more may come at any time
            await self._note_offsets()
            soon = failed or (not self._told.isdisjoint(asked) and attempts < _ATTEMPTS)
            if not soon:
                self._told -= asked
                self._name_kept(asked)
            if not (failed or self._noticed.is_set()):
                self._settled.set()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_RETRY if soon else _LATER):
                    await self._noticed.wait()
                attempts = 0
        self._settled.set()

    async def _decide(self, strays: list[Stray]) -> None:
        replicas = [Replica(each.topic, each.partition, each.topic_id, each.path in self._told) for each in strays]
        verdicts = await removable(self._store(), self._broker_id, replicas)
        condemned = [stray for stray, remove in zip(strays, verdicts, strict=True) if remove]
        if condemned:
            await asyncio.get_running_loop().run_in_executor(self._executor, self._delete, condemned)
        self._told &= {each.path for each in self._logs.strays()}

    def _delete(self, strays: list[Stray]) -> None:
        for stray in strays:
            if self._logs.delete_stray(stray):
                logger.info("deleted the log of %s", TopicPartition(stray.topic, stray.partition))

    async def _note_offsets(self) -> None:
        """Have those that stay know where they begin when the broker has ended; a disk that was full is tried again."""
        kept = {each.path: each for each in self._logs.strays()}
        new = [kept[path] for path in kept.keys() - self._noted]
        self._noted = set(kept)
        if new:
            loop = asyncio.get_running_loop()
            self._noted -= await loop.run_in_executor(self._executor, self._logs.note_offsets, new)

    def _name_kept(self, asked: set[str]) -> None:
        kept = {each.path for each in self._logs.strays()} & asked
        if new := sorted(kept - self._named):
            logger.warning(
                "%d logs stay set aside, the first is %s: this broker has no such replicas, but the metadata tree "
                "records no deletion of their topics. `barnabas log strays` lists and removes them",
                len(new),
                new[0],
            )
        self._named = kept
