"""A partition on its leader: who is in sync, how far everyone is, and what is therefore committed.

The high watermark is the lowest log end offset over the maximal ISR: the ISR that the controller committed, plus
replicas that were proposed for it and not yet confirmed. So an ISR that grows counts at once, and one that shrinks
counts only when the controller has agreed; whichever of the two the next leader is chosen from, it has everything below
the high watermark. A partition with one replica needs none of this: what is appended is committed.

A proposal whose answer does not come may be taken at any time, so what it adds goes on counting until the controller
has taken a later one: only a state with a higher partition epoch ends the doubt, since every proposal names the epoch
that it is made from. `next_isr` therefore proposes the ISR as it is, when there is nothing else to propose.

Invariants: the high watermark never goes back, and never passes the leader's own log end; everyone in the controller's
ISR counts, whichever proposals it has taken.

One object stands for one leadership: a new leader epoch makes a new object.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from barnabas.model.errors import ErrorCode, FencedLeaderEpoch, UnknownLeaderEpoch

if TYPE_CHECKING:
    from collections.abc import Collection, Container

NO_EPOCH: Final = -1
"""As a client's current leader epoch: it names none, and nothing is checked."""
UNKNOWN_OFFSET: Final = -1
"""Where the log of a replica begins and ends that has not fetched since this leader took over."""
NO_BROKER_EPOCH: Final = -1
"""As a broker's epoch: not known, and nothing is checked."""
_LEAVES_DOUBT: Final = frozenset(
    {
        ErrorCode.invalid_update_version,
        ErrorCode.fenced_leader_epoch,
        ErrorCode.not_controller,
        ErrorCode.new_leader_elected,
    }
)
"""Refusals after which this proposal or an earlier one may be in force: the controller's news will tell."""


class Progress(NamedTuple):
    """How a follower gets on, by a clock that never goes back."""

    caught_up: float
    """When it last had everything that the leader had."""
    fetched_at: float
    """When it last fetched."""
    end_then: int
    """The leader's log end at that time."""


def check_epoch(leader_epoch: int, current_leader_epoch: int) -> None:
    """Refuse a client that knows an older or a newer leadership than this one; it may name none."""
    if current_leader_epoch in (leader_epoch, NO_EPOCH):
        return
    if current_leader_epoch < leader_epoch:
        raise FencedLeaderEpoch(
            f"the leader epoch is {leader_epoch}, the request knows {current_leader_epoch}: refresh metadata"
        )
    raise UnknownLeaderEpoch(
        f"the leader epoch is {leader_epoch} here, the request knows {current_leader_epoch} already; try again"
    )


class PartitionLeader:
    """The state of one partition while this broker leads it."""

    __slots__ = (
        "_doubtful",
        "_ends",
        "_epochs",
        "_log_end_offset",
        "_pending",
        "_progress",
        "_starts",
        "_unfit",
        "_waiting",
        "broker_id",
        "epoch_start_offset",
        "high_watermark",
        "is_followed",
        "isr",
        "leader_epoch",
        "partition_epoch",
        "replicas",
    )

    def __init__(
        self,
        *,
        broker_id: int,
        leader_epoch: int,
        replicas: Collection[int],
        isr: Collection[int],
        log_end_offset: int,
        high_watermark: int,
        partition_epoch: int = 0,
        now: float = 0.0,
        counted: int | None = None,
    ) -> None:
        """`counted` is how far the leader's own log counts, if that is not up to its end: the rest is being synced."""
        self.broker_id = broker_id
        self.leader_epoch = leader_epoch
        self.partition_epoch = partition_epoch
        """Version of the state that the controller committed; a change of the ISR names the one it is made from."""
        self.replicas = tuple(replicas)
        self.epoch_start_offset = log_end_offset
        """Where this leadership began: the high watermark says nothing reliable until it is here."""
        self.isr = frozenset(isr)
        """As the controller committed it."""
        self.high_watermark = min(high_watermark, log_end_offset)
        self._log_end_offset = log_end_offset if counted is None else counted
        self._pending: frozenset[int] = frozenset()
        self._waiting = False
        """Whether a proposal has no answer yet."""
        self._doubtful = False
        """Whether an earlier proposal never got one."""
        self._unfit: set[int] = set()
        """Followers that the controller would not have, and that have not fetched since: not to be proposed again."""
        self._epochs: dict[int, int] = {}
        self._ends = {replica: UNKNOWN_OFFSET for replica in replicas if replica != broker_id}
        self.is_followed = bool(self._ends)
        """Whether the partition has replicas on other brokers."""
        self._starts = dict.fromkeys(self._ends, UNKNOWN_OFFSET)
        self._progress = {replica: Progress(now, now, UNKNOWN_OFFSET) for replica in self._ends}
        self._advance()

    @property
    def maximal_isr(self) -> frozenset[int]:
        """Everyone whose log end counts: the committed ISR and what was proposed to join it."""
        return self.isr | self._pending

    @property
    def knows_high_watermark(self) -> bool:
        """Whether the high watermark has reached this leadership's start; before, the last leader knew more."""
        return self.high_watermark >= self.epoch_start_offset

    def appended(self, log_end_offset: int) -> bool:
        """The leader's own log has grown to here; True if the high watermark moved.

        It may have been told of more already: a sync that is heard of late takes nothing back.
        """
        if log_end_offset <= self._log_end_offset:
            return False
        self._log_end_offset = log_end_offset
        if not self._ends:
            self.high_watermark = log_end_offset
            return True
        return self._advance()

    def fetched(
        self,
        replica: int,
        log_end_offset: int,
        now: float = 0.0,
        broker_epoch: int = NO_BROKER_EPOCH,
        log_start_offset: int = UNKNOWN_OFFSET,
    ) -> bool:
        """A follower asks from this offset on, so it has all from its start to there; True if the high watermark moved.

        It was caught up now if it has all there is, and when it last fetched if it has all that there was then. What it
        said before it registered anew is of no account: its disk may have lost what it had.
        """
        if broker_epoch != NO_BROKER_EPOCH:
            if broker_epoch < self._epochs.get(replica, NO_BROKER_EPOCH):
                return False
            self._epochs[replica] = broker_epoch
        if self._unfit:
            self._unfit.discard(replica)
        self._ends[replica] = log_end_offset
        self._starts[replica] = log_start_offset
        caught_up, fetched_at, end_then = self._progress[replica]
        if log_end_offset >= self._log_end_offset:
            caught_up = now
        elif end_then != UNKNOWN_OFFSET and log_end_offset >= end_then:
            caught_up = max(caught_up, fetched_at)
        self._progress[replica] = tuple.__new__(Progress, (caught_up, now, self._log_end_offset))  # without its checks
        return self.high_watermark != self._log_end_offset and self._advance()

    def end_of(self, replica: int) -> int:
        """How far a follower is known to be; UNKNOWN_OFFSET before it has fetched."""
        return self._ends.get(replica, UNKNOWN_OFFSET)

    def has(self, replica: int, offset: int) -> bool:
        """Whether a follower is known to have the records from `offset` on, up to its end: its log may start later."""
        return 0 <= self._starts.get(replica, UNKNOWN_OFFSET) <= offset <= self._ends[replica]

    def low_watermark(self, log_start_offset: int, up: Container[int]) -> int:
        """Nothing before this is left on any broker that is up, if the leader's own log begins at `log_start_offset`.

        Unknown until all of them have fetched.
        """
        return min((log_start_offset, *(start for replica, start in self._starts.items() if replica in up)))

    def may_join(self, replica: int) -> bool:
        """Whether a follower outside the ISR has everything that is committed, and all of earlier leaderships."""
        end = self._ends.get(replica, UNKNOWN_OFFSET)
        return (
            replica not in self._pending
            and replica not in self._unfit
            and end >= self.high_watermark
            and end >= self.epoch_start_offset
        )

    def lagging(self, now: float, max_lag: float, max_messages: int | None = None) -> frozenset[int]:
        """Followers that count as in sync, but were not caught up for `max_lag` or are over `max_messages` behind.

        A follower that has all there is never lags, however long it was silent.
        """
        end = self._log_end_offset
        return frozenset(
            replica
            for replica in self.maximal_isr
            if replica != self.broker_id
            and replica in self._ends
            and self._ends[replica] != end
            and (
                now - self._progress[replica].caught_up > max_lag
                or (max_messages is not None and end - self._ends[replica] > max_messages)
            )
        )

    def next_isr(self, now: float, max_lag: float, max_messages: int | None = None) -> tuple[int, ...] | None:
        """What to propose as the ISR: without those that lag, with those that may join. None if all is as it should be.

        It is the ISR as it is when only a doubt must be ended.
        """
        lagging = self.lagging(now, max_lag, max_messages)
        members = self.isr | (self._pending - self._unfit)
        wanted = tuple(
            replica
            for replica in self.replicas
            if replica not in lagging and (replica in members or self.may_join(replica))
        )
        return wanted if self._pending or self.isr != frozenset(wanted) else None

    def broker_epochs(self, isr: Collection[int]) -> tuple[int, ...]:
        """With which registration each of them fetched last."""
        return tuple(self._epochs.get(replica, NO_BROKER_EPOCH) for replica in isr)

    def propose(self, replicas: Collection[int]) -> None:
        """Ask the controller to make this the ISR: whoever comes counts from now on, whoever goes counts until then."""
        self._doubtful |= self._waiting
        self._waiting = True
        self._pending |= frozenset(replicas) - self.isr

    def refused(self, code: ErrorCode) -> None:
        """The controller refused the last proposal: what it added counts no more, unless an earlier one is in doubt.

        A follower that it would not have must not keep another one from leaving: the next proposal is without it.
        """
        if code in _LEAVES_DOUBT:
            return
        if code is ErrorCode.ineligible_replica:
            self._unfit |= self._pending
        self._waiting = False
        if not self._doubtful:
            self._pending = frozenset()

    def commit_isr(self, isr: Collection[int], partition_epoch: int) -> bool:
        """The controller decided: nothing is pending any more; True if the high watermark moved.

        Old news are ignored, and what is known already: neither says what became of a proposal.
        """
        if partition_epoch <= self.partition_epoch:
            return False
        self.isr = frozenset(isr)
        self.partition_epoch = partition_epoch
        self._pending = frozenset()
        self._waiting = self._doubtful = False
        return self._advance()

    def check_epoch(self, current_leader_epoch: int) -> None:
        """Refuse a client that knows an older or a newer leadership than this one."""
        if current_leader_epoch != self.leader_epoch:
            check_epoch(self.leader_epoch, current_leader_epoch)

    def _advance(self) -> bool:
        lowest = self._log_end_offset
        for replica, end in self._ends.items():
            if end < lowest and (replica in self.isr or replica in self._pending):
                lowest = end
        if lowest <= self.high_watermark:
            return False
        self.high_watermark = lowest
        return True
