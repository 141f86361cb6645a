"""One share partition on the broker that leads its partition: the machine, and what makes its decisions durable.

    loading    the state is read from the share coordinator, in the leader epoch of the partition; fetches wait for it
    active     fetches acquire records, acknowledgements are stored and then answered
               what is given up is archived after its dead letters are stored (`archiver`)
    over       this broker leads no more, or another leader or another state has fenced it: the next request loads anew;
               or the state cannot be loaded: then requests are told so for a moment, before one loads anew

Everything happens on the event loop, so a fetch looks at the log, acquires and answers without anybody in between.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final

from barnabas.broker.coordinators.timers import Timers
from barnabas.broker.shares.archiver import Archiver
from barnabas.machines.shares.coordinator import StateUpdate
from barnabas.machines.shares.partition import SharePartition
from barnabas.machines.shares.unset import UNINITIALIZED
from barnabas.model.errors import (
    ApiError,
    CoordinatorLoadInProgress,
    CoordinatorNotAvailable,
    FencedLeaderEpoch,
    FencedStateEpoch,
    InvalidRequest,
    NotCoordinator,
    NotLeaderOrFollower,
    UnknownServerError,
    UnknownTopicOrPartition,
)

if TYPE_CHECKING:
    from collections.abc import Coroutine, Hashable, Sequence

    from barnabas.broker.coordinators.shares import Answered
    from barnabas.broker.replication.leader_partition import LeaderPartition
    from barnabas.broker.replication.wakeups import Watcher
    from barnabas.broker.shares.partitions import SharePartitions
    from barnabas.machines.outcome import Outcome
    from barnabas.machines.shares.coordinator import ShareKey, StoredState
    from barnabas.machines.shares.records import (
        AcknowledgementBatch,
        Acquired,
        AcquireLimits,
        LogBatch,
        SharePartitionSettings,
    )
    from barnabas.protocol.coordinator_records.share_state import StateBatch

logger = logging.getLogger(__name__)

MOVING: Final = (CoordinatorLoadInProgress, CoordinatorNotAvailable, NotCoordinator)
"""Errors of a coordinator that moves or loads."""
AGAIN: Final = (*MOVING, InvalidRequest)
"""Those, and that of a state that the group coordinator is about to initialize."""
OUTDATED: Final = (FencedLeaderEpoch, FencedStateEpoch, InvalidRequest, UnknownTopicOrPartition)
"""Errors of writes by which another leader or another state is there, or none: what is known here holds no more."""
WRITE_PAUSES: Final = (0.05, 0.1, 0.2, 0.4, 0.8, 1.0, 1.0, 1.5)
"""Seconds before a write is tried again while the coordinator moves: about five in all."""
FIRST_READ: Final = 128 * 1024
FIRST_PAUSE: Final = 0.05
LONGEST_PAUSE: Final = 1.0
"""Seconds before a state is read again; each pause is twice as long as the last."""


class HostedSharePartition:
    """One share partition that this broker serves, as long as it leads the partition without a break.

    A follower that dies raises the leader epoch, too. Locks outlive that: the members do not hear of it. What is stored
    goes on being written in the leader epoch that has read the state, so whoever reads it in a later one fences this.
    """

    def __init__(self, host: SharePartitions, key: ShareKey, partition: LeaderPartition) -> None:
        self.key = key
        self.name = f"{partition.tp} of share group {key.group_id}"
        """For people."""
        self.partition = partition
        self.machine: SharePartition | None = None
        """None while the state is loaded, and when this object is over."""
        self.failure: ApiError | None = None
        """Why it is over."""
        self.read_size = FIRST_READ
        """Bytes that a fetch reads first, by what the last member got."""
        self.archiver = Archiver(host, self)
        self.is_lingering = False
        """Whether it stays only for dead letters: its group has no members here. Who comes loads the state anew."""
        self._host = host
        self._clock = host.clock
        self._state_epoch = 0
        self._leader_epoch = partition.leader.leader_epoch
        """The one in which the state was read."""
        self._is_loaded = False
        self._timers = Timers(host.clock, self._expire)
        self._watchers: dict[Watcher, None] = {}
        """Fetches that wait for records to be available."""

    # Loading

    async def load(self) -> None:
        """Read the state, again and again only while somebody waits for it: the group may not even exist."""
        try:
            await self._load()
        except ApiError as error:
            logger.warning("Could not load the state of %s. Its members get an error: %s", self.name, error)
            self._could_not_load(error)
        except Exception as error:
            logger.exception("Loading the state of %s failed. Its members get an error.", self.name)
            self._could_not_load(UnknownServerError(str(error)))

    async def _load(self) -> None:
        pause = FIRST_PAUSE
        while self.failure is None:
            answer = await self._host.states.read(self.key, self._leader_epoch)
            if not isinstance(answer, ApiError):
                await self._begin(answer)
                return
            if not isinstance(answer, AGAIN):
                raise _member_error(answer)
            await asyncio.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE)
            if not self._watchers:
                self.end(_member_error(answer))

    def _could_not_load(self, error: ApiError) -> None:
        """Be over, but stay known for a moment: whoever asks meanwhile is told the error, and nothing is read anew."""
        if self.failure is None:
            self._serve_no_more(error)
            asyncio.get_running_loop().call_later(LONGEST_PAUSE, self._host.forget, self)

    async def _begin(self, state: StoredState) -> None:
        start = state.start_offset
        if start == UNINITIALIZED:
            start = await self._host.initial_offset(self.key.group_id, self.partition)
        machine = SharePartition(self.settings())
        machine.load(state, start)
        self._state_epoch = state.state_epoch
        if state.start_offset == UNINITIALIZED and self.failure is None:
            await self._store_start(machine)
        if self.failure is None:
            self.machine, self._is_loaded = machine, True
            self.wake()
            self.archiver.wake()

    async def _store_start(self, machine: SharePartition) -> None:
        """Keep the start that was chosen before anything is delivered.

        Otherwise whoever loads the state before something is acknowledged chooses again; with "latest" that is the end
        that the log has by then, and messages that came meanwhile are lost to the group.
        """
        error = await self._write(machine, ())
        if error is not None:
            logger.warning(
                "Could not store the start offset %d of %s. It is chosen again if the state is loaded before "
                "anything is acknowledged: %s",
                machine.start_offset,
                self.name,
                error,
            )

    def leads_on(self, partition: LeaderPartition) -> bool:
        """Go on in a later leader epoch, if this broker has led ever since; otherwise the state may be another one."""
        if self.partition is not partition:
            if self.machine is None or not partition.leads_on_from(self.partition):
                return False
            self.partition = partition
        return True

    def settings(self) -> SharePartitionSettings:
        """What holds for it now."""
        return self._host.settings_of(self.key.group_id)

    def end(self, error: ApiError) -> None:
        """Serve no more: fetches that wait look again, and find another object or the error."""
        if self.failure is None:
            self._host.forget(self)
            self._serve_no_more(error)

    def _serve_no_more(self, error: ApiError) -> None:
        self.failure, self.machine = error, None
        self._timers.clear()
        self.archiver.stop()
        self.wake()

    # Fetches

    def add_watcher(self, watcher: Watcher) -> None:
        """Wake a fetch when there may be more to acquire."""
        self._watchers[watcher] = None

    def remove_watcher(self, watcher: Watcher) -> None:
        """Wake it no more."""
        self._watchers.pop(watcher, None)

    def wake(self) -> None:
        """Wake the fetches that wait."""
        for watcher in list(self._watchers):
            watcher.wake()

    def can_acquire(self, machine: SharePartition) -> bool:
        """Whether a fetch could get anything: where there is no room, the group's limit may have been raised."""
        if machine.can_acquire():
            return True
        machine.settings = self.settings()
        return machine.can_acquire()

    def acquire(
        self, member: str, found: Sequence[LogBatch], limits: AcquireLimits, fetch_offset: int
    ) -> list[Acquired]:
        """Lock records of batches that were just read."""
        assert self.machine is not None
        self.machine.settings = self.settings()
        acquired, outcome = self.machine.acquire(member, found, limits, fetch_offset, self._now_ms())
        self._set_timers(outcome)
        return acquired

    # Decisions

    async def acknowledge(self, member: str, batches: Sequence[AcknowledgementBatch]) -> None:
        """Do what a member says, and return when it is stored. Raises ApiError."""
        machine = self._active()
        machine.settings = self.settings()
        await self.store(machine, machine.acknowledge(member, batches, self._now_ms()))

    def release(self, member: str) -> Coroutine[None, None, None] | None:
        """Take back, now, everything that a member has acquired; what is returned stores it. That raises ApiError."""
        if self.machine is None:
            return None
        self.machine.settings = self.settings()
        return self.store(self.machine, self.machine.release(member))

    def _active(self) -> SharePartition:
        if self.machine is None:
            raise self.failure or NotLeaderOrFollower(f"The state of {self.name} is being loaded. Try again.")
        return self.machine

    async def store(self, machine: SharePartition, outcome: Outcome[StateBatch, object, object]) -> None:
        """Store what the machine has decided, and tell it so. Raises ApiError."""
        self._set_timers(outcome)
        if not outcome.changes:
            return
        (write,) = outcome.sends
        assert isinstance(write, int)
        error = await self._write(machine, outcome.changes)
        if machine is not self.machine:
            raise self.failure or NotLeaderOrFollower(f"The state of {self.name} was loaded anew.")
        if error is not None:
            self._set_timers(machine.refused(write))
            raise error
        could_acquire = machine.can_acquire()
        machine.stored(write)
        # Who waits although there was room waits for the log to grow, unless something is to be delivered again.
        if not could_acquire or machine.next_fetch_offset() < machine.end_offset:
            self.wake()
        self.archiver.wake()

    async def _write(self, machine: SharePartition, batches: tuple[StateBatch, ...]) -> ApiError | None:
        """Store a change, again if the coordinator moves meanwhile. The error is what a client is told."""
        answer = await self._write_once(machine, batches)
        for pause in WRITE_PAUSES:
            if not isinstance(answer, MOVING) or self.failure is not None:
                break
            await asyncio.sleep(pause)
            if self.failure is not None:
                break
            answer = await self._write_once(machine, batches)
        if not isinstance(answer, ApiError):
            return None
        told = _member_error(answer)
        if isinstance(answer, OUTDATED):
            logger.info("The state of %s is outdated. The next fetch loads it again: %s", self.name, answer)
            (self.end if self._is_loaded else self._could_not_load)(told)
        return told

    async def _write_once(self, machine: SharePartition, batches: tuple[StateBatch, ...]) -> Answered:
        """Store a change with the start as it is now: another write may have moved it since the last try."""
        update = StateUpdate(
            self._state_epoch,
            self._leader_epoch,
            machine.start_offset,
            batches,
            machine.complete_count,
        )
        return await self._host.states.write(self.key, update)

    # Locks

    def _now_ms(self) -> int:
        """Monotonic time, by which locks end: a clock that is set back keeps no record locked."""
        return int(self._clock.monotonic() * 1000)

    def _set_timers(self, outcome: Outcome[StateBatch, object, object]) -> None:
        for timer in outcome.timers:
            if timer.at_ms is None:
                self._timers.cancel(timer.key)
            else:
                self._timers.set(timer.key, timer.at_ms, self._now_ms())

    def _expire(self, key: Hashable) -> None:
        machine = self.machine
        if machine is None:
            return
        machine.settings = self.settings()
        outcome = machine.expire(key, self._now_ms())
        self._set_timers(outcome)
        if outcome.changes:
            self._host.spawn(self._store_released(machine, outcome))
            self.wake()

    async def _store_released(self, machine: SharePartition, outcome: Outcome[StateBatch, object, object]) -> None:
        """Store what timed out. If that fails, the next leader delivers these records as if that had not been."""
        error = await self._write(machine, outcome.changes)
        if error is not None:
            logger.warning(
                "Could not store that acquisition locks of %s timed out. These deliveries do not count after a "
                "change of the leader: %s",
                self.name,
                error,
            )
        if machine is self.machine:
            for write in outcome.sends:
                assert isinstance(write, int)
                if error is None:
                    machine.stored(write)
                else:
                    self._set_timers(machine.refused(write))
            self.archiver.wake()


def _member_error(error: ApiError) -> ApiError:
    """What a client is told of an error of the coordinator: members try again if it moves, and nobody is blamed."""
    if isinstance(error, MOVING):
        return CoordinatorNotAvailable(str(error))
    if isinstance(error, FencedLeaderEpoch | FencedStateEpoch):
        return NotLeaderOrFollower(str(error))
    if isinstance(error, UnknownTopicOrPartition):
        return error
    return UnknownServerError(str(error))
