"""The in-sync replicas of the partitions that this broker leads: which changes it proposes to the controller.

A follower that was not caught up for replica.lag.time.max.ms has to leave the ISR. One that has caught up has to join.
The leader proposes both to the controller (AlterPartition), one change per partition at a time. A replica that is
proposed to join counts at once. A replica that is proposed to leave counts until the controller has agreed
(`machines/partition`).

What the controller has not decided, because it could not be reached or is none any more, is proposed again after a
moment: meanwhile a replica that caught up is not in sync, and one that was proposed to join holds up acks=all.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from math import inf
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from barnabas.model.errors import ApiError, BarnabasError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from uuid import UUID

    from barnabas.broker.replication.leader_partition import LeaderPartition
    from barnabas.broker.replication.replicas import ReplicaManager
    from barnabas.broker.settings import Settings

logger = logging.getLogger(__name__)

MOST_AT_ONCE: Final = 5_000
"""Partitions that are looked at in one turn of the event loop and named in one request: it has a limit of elements."""
_LOGGED_ONE_BY_ONE: Final = 10
"""With more changes than this in one request, each is logged at DEBUG."""
_BATCHING_SECONDS: Final = 0.01
"""How long to wait for more followers that catch up, to propose them in one request."""
_LONGEST_CHECK_SECONDS: Final = 10.0
"""The longest time between two checks of all followers."""
_RETRY_SECONDS: Final = 0.05
_LONGEST_RETRY_SECONDS: Final = 1.0
"""How long to wait before what was not decided is proposed again: twice as long each time, up to this."""


class IsrProposal(NamedTuple):
    """The ISR that a leader proposes for its partition."""

    topic_id: UUID
    partition: int
    leader_epoch: int
    partition_epoch: int
    isr: tuple[int, ...]
    broker_epochs: tuple[int, ...]
    """The broker epoch with which each replica of `isr` fetched last."""


class IsrDecision(NamedTuple):
    """The ISR that the controller committed."""

    isr: tuple[int, ...]
    partition_epoch: int


class IsrAuthority(Protocol):
    """Decides about proposals: the controller, on this broker or on another."""

    async def alter_isr(self, proposals: Sequence[IsrProposal]) -> list[IsrDecision | ApiError]:
        """Decide each proposal. Raises BarnabasError when the controller cannot be reached."""
        ...


class IsrManager:
    """Keeps the ISR of the partitions that this broker leads."""

    def __init__(self, replicas: ReplicaManager, authority: IsrAuthority, settings: Settings) -> None:
        self._replicas = replicas
        self._authority = authority
        self._settings = settings
        self._growing: dict[LeaderPartition, None] = {}
        """Partitions with a follower that has caught up, in the order in which they were noticed."""
        self._has_growing = asyncio.Event()
        self._proposed: set[LeaderPartition] = set()
        """Partitions with a proposal under way."""
        self._undecided: dict[LeaderPartition, None] = {}
        """Partitions of whose last proposal it is not known what became."""
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to check followers."""
        self._task = asyncio.get_running_loop().create_task(self._run(), name="in-sync replicas")

    async def stop(self) -> None:
        """Propose nothing more."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def isr_may_grow(self, partition: LeaderPartition) -> None:
        """A follower has caught up: propose it soon."""
        if partition not in self._proposed:
            self._growing[partition] = None
            self._has_growing.set()

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        next_check, pause = 0.0, _RETRY_SECONDS
        while True:
            lag_ms = self._settings.number("replica.lag.time.max.ms")
            if loop.time() >= next_check:
                next_check = loop.time() + min(lag_ms / 2000, _LONGEST_CHECK_SECONDS)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout_at(min(next_check, loop.time() + (pause if self._undecided else inf))):
                    await self._has_growing.wait()
                    await asyncio.sleep(_BATCHING_SECONDS)
            self._has_growing.clear()
            due = self._growing | self._undecided
            self._growing, self._undecided = {}, {}
            if loop.time() >= next_check:
                due = dict.fromkeys(self._replicas.all())
            try:
                await self._propose(list(due), lag_ms / 1000)
            except BarnabasError as error:
                logger.log(
                    logging.INFO if pause == _RETRY_SECONDS else logging.DEBUG,
                    "Could not reach the controller to change in-sync replicas. It is tried again: %s",
                    error,
                )
            except Exception:
                logger.exception("The check of in-sync replicas failed. It is tried again.")
            pause = min(2 * pause, _LONGEST_RETRY_SECONDS) if self._undecided else _RETRY_SECONDS

    async def _propose(self, partitions: Sequence[LeaderPartition], max_lag: float) -> None:
        """Propose every change that is due."""
        self._undecided = dict.fromkeys(partitions)
        for start in range(0, len(partitions), MOST_AT_ONCE):
            some = partitions[start : start + MOST_AT_ONCE]
            here = [each for each in some if self._replicas.get(*each.tp) is each]
            wanted = self._due_changes(here, max_lag)
            asked = {partition for partition, _ in wanted}
            self._decided(partition for partition in some if partition not in asked)
            if wanted:
                await self._ask(wanted)
                self._decided(partition for partition in asked if not partition.leader.is_undecided)
            await asyncio.sleep(0)

    def _decided(self, partitions: Iterable[LeaderPartition]) -> None:
        for partition in partitions:
            del self._undecided[partition]

    async def _ask(self, wanted: Sequence[tuple[LeaderPartition, tuple[int, ...]]]) -> None:
        """Propose changes in one request."""
        proposals = []
        for partition, isr in wanted:
            leader = partition.leader
            leader.propose(isr)
            self._proposed.add(partition)
            proposals.append(
                IsrProposal(
                    partition.topic_id,
                    partition.tp.partition,
                    leader.leader_epoch,
                    leader.partition_epoch,
                    isr,
                    leader.broker_epochs(isr),
                )
            )
        try:
            self._take(wanted, await self._authority.alter_isr(proposals))
        finally:
            self._proposed.difference_update(partition for partition, _ in wanted)

    def _take(
        self, wanted: Sequence[tuple[LeaderPartition, tuple[int, ...]]], decisions: Iterable[IsrDecision | ApiError]
    ) -> None:
        """What the controller says to the proposals."""
        level = logging.INFO if len(wanted) <= _LOGGED_ONE_BY_ONE else logging.DEBUG
        for (partition, isr), decision in zip(wanted, decisions, strict=True):
            if isinstance(decision, ApiError):
                logger.info("The controller refused the ISR %s of %s: %s", isr, partition.tp, decision)
                partition.leader.refused(decision.code)
            else:
                logger.log(level, "The ISR of %s is now %s.", partition.tp, decision.isr)
                partition.commit_isr(decision.isr, decision.partition_epoch)
        if len(wanted) > _LOGGED_ONE_BY_ONE:
            logger.info("Proposed new in-sync replicas for %d partitions.", len(wanted))

    def _due_changes(
        self, partitions: Iterable[LeaderPartition], max_lag: float
    ) -> list[tuple[LeaderPartition, tuple[int, ...]]]:
        """The partitions whose ISR has to change, each with the ISR to propose."""
        now = asyncio.get_running_loop().time()
        max_messages = self._settings.number_or_none("replica.lag.max.messages")
        up = self._replicas.brokers_up()
        due = []
        for partition in partitions:
            leader = partition.leader
            if len(leader.replicas) == 1:
                continue
            isr = leader.next_isr(now, max_lag, max_messages)
            if isr is None:
                continue
            isr = tuple(each for each in isr if each in leader.isr or each in up)
            if frozenset(isr) != leader.isr or leader.maximal_isr != leader.isr:
                due.append((partition, isr))
        return due
