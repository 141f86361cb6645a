"""Logs that were set aside: they are removed when the metadata tree says so, and kept otherwise.

Every log that does not belong to this broker any more comes here, whether the cluster's image, a message of the
controller or a decision of this broker as controller said so. It is set aside first (`storage/strays`), which loses
nothing. Then the metadata tree is asked (`metadata/deletions`), again and again while it cannot be reached. A log whose
removal the tree does not allow stays for an operator to look at. The tree is asked again from time to time, since a
topic may be deleted later.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import TYPE_CHECKING, Final

from barnabas.metadata.deletions import StrayReplica, recorded, removable
from barnabas.metadata.stores.store import StoreError
from barnabas.model.ids import NO_ID, TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable, Collection
    from concurrent.futures import Executor
    from uuid import UUID

    from barnabas.metadata.stores.store import MetadataStore
    from barnabas.storage.manager import LogManager
    from barnabas.storage.strays import Stray

logger = logging.getLogger(__name__)

_RETRY: Final = 1.0
"""Seconds until the tree is asked again, if it could not be reached or does not show yet that a partition moved."""
_ATTEMPTS: Final = 10
"""How often the tree is asked whether a partition moved before its log counts as kept."""
_LATER: Final = 600.0
"""Seconds until the tree is asked again about logs that are kept."""


class Strays:
    """Decides about logs that were set aside, in a task that runs while there are any."""

    def __init__(
        self,
        broker_id: int,
        logs: LogManager,
        store: Callable[[], MetadataStore],
        executor: Executor,
        *,
        is_controller: Callable[[], bool] = lambda: False,
    ) -> None:
        self._broker_id = broker_id
        self._logs = logs
        self._store = store
        self._executor = executor
        self.is_controller = is_controller
        """Whether this broker itself decided what the cluster's image says."""
        self._moved: set[str] = set()
        """Paths of logs whose partitions moved to other brokers, as the controller said or this broker decided."""
        self._logged_as_kept: set[str] = set()
        """Paths of logs that were logged as kept."""
        self._with_offsets: set[str] = set()
        """Paths of logs whose offsets were written down."""
        self._added = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._stopped = False
        self._settled = asyncio.Event()
        self._settled.set()

    def add(self, stray: Stray | None, *, moved: bool) -> None:
        """Decide about a log that was set aside just now; `moved` if its partition moved to other brokers."""
        if stray is not None and moved:
            self._moved.add(stray.path)
        self.look()

    def look(self) -> None:
        """Ask the tree about all logs that are set aside."""
        if self._stopped or not self._logs.strays():
            return
        self._settled.clear()
        self._added.set()
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._run(), name="strays")

    async def recorded_as_deleted(self, topic_ids: Collection[UUID]) -> set[UUID]:
        """The topics that the tree records as deleted; none if the tree cannot be reached."""
        try:
            return await recorded(self._store(), [each for each in topic_ids if each != NO_ID])
        except StoreError as error:
            logger.warning(
                "Could not read from the metadata tree which topics were deleted. Their logs stay where they are: %s",
                error,
            )
            return set()

    async def settled(self) -> None:
        """Wait until the tree was asked about every log that is set aside."""
        await self._settled.wait()

    async def stop(self) -> None:
        """Decide nothing more, whatever else is set aside: the broker's threads are about to end."""
        self._stopped = True
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
        self._settled.set()

    async def _run(self) -> None:
        attempts, failed = 0, False
        while strays := self._logs.strays():
            self._added.clear()
            try:
                await self._decide(strays)
                failed = False
            except StoreError as error:
                if not failed:
                    logger.warning(
                        "Could not read from the metadata tree whether %d logs may be removed. They are kept, and it "
                        "is tried again: %s",
                        len(strays),
                        error,
                    )
                failed = True
            except Exception:
                if not failed:
                    logger.exception("Could not decide whether %d logs may be removed. It is tried again.", len(strays))
                failed = True
            attempts += 1
            asked = {each.path for each in strays}  # more may come at any time
            await self._write_offsets()
            soon = failed or (not self._moved.isdisjoint(asked) and attempts < _ATTEMPTS)
            if not soon:
                self._moved -= asked
                self._log_kept(asked)
            if not (failed or self._added.is_set()):
                self._settled.set()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_RETRY if soon else _LATER):
                    await self._added.wait()
                attempts = 0
        self._settled.set()

    async def _decide(self, strays: list[Stray]) -> None:
        replicas = [
            StrayReplica(each.topic, each.partition, each.topic_id, each.path in self._moved) for each in strays
        ]
        may_remove = await removable(self._store(), self._broker_id, replicas)
        to_remove = [stray for stray, remove in zip(strays, may_remove, strict=True) if remove]
        if to_remove:
            await asyncio.get_running_loop().run_in_executor(self._executor, self._delete, to_remove)
        self._moved &= {each.path for each in self._logs.strays()}

    def _delete(self, strays: list[Stray]) -> None:
        for stray in strays:
            if self._logs.delete_stray(stray):
                logger.info("Deleted the log of %s.", TopicPartition(stray.topic, stray.partition))

    async def _write_offsets(self) -> None:
        """Write down the offsets of logs that are kept, for when the broker has stopped; a full disk is tried again."""
        kept = {each.path: each for each in self._logs.strays()}
        new = [each for path, each in kept.items() if path not in self._with_offsets]
        self._with_offsets = set(kept)
        if new:
            loop = asyncio.get_running_loop()
            self._with_offsets -= await loop.run_in_executor(self._executor, self._logs.write_stray_offsets, new)

    def _log_kept(self, asked: set[str]) -> None:
        kept = {each.path for each in self._logs.strays()} & asked
        if new := sorted(kept - self._logged_as_kept):
            logger.warning(
                "%d logs stay set aside, the first is %s. This broker has no such replicas, but the metadata tree "
                "records no deletion of their topics. `barnabas log strays` lists and removes them.",
                len(new),
                new[0],
            )
        self._logged_as_kept = kept
