"""A partition on its leader: which replicas are in sync, how far each is, and where the high watermark is therefore.

The high watermark is the lowest log end offset over the maximal ISR: the ISR that the controller committed, plus
replicas that were proposed for it and not yet confirmed. So an ISR that grows counts at once, and one that shrinks
counts only when the controller has agreed. Whichever of the two the next leader is elected from, it has all records
below the high watermark. A partition with one replica needs none of this: what is appended is committed.

The controller may accept a proposal whose answer was lost. So replicas that it adds go on counting until the controller
has accepted a later one: only a higher partition epoch ends the doubt, since every proposal names the partition epoch
that it is made from. `next_isr` therefore proposes the ISR as it is, when there is no other change to propose.

With acks=all a Produce needs min.insync.replicas replicas in the ISR. `accepts` is the one place that decides this.

Invariants: the high watermark never goes back, and never passes the leader's own log end; every replica in the
controller's ISR counts, whichever proposals the controller has accepted.

One object stands for one leadership: a new leader epoch makes a new object.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from barnabas.model.errors import ErrorCode, FencedLeaderEpoch, UnknownLeaderEpoch

if TYPE_CHECKING:
    from collections.abc import Collection, Container

ACKS_ALL: Final = -1
"""As acks of a Produce: all replicas in sync have to store the records."""
NO_EPOCH: Final = -1
"""As a client's current leader epoch: the client does not name one, and nothing is checked."""
UNKNOWN_OFFSET: Final = -1
"""As start and end of a follower's log: the follower has not fetched in this leader epoch."""
NO_BROKER_EPOCH: Final = -1
"""As a broker epoch: it is not known, and nothing is checked."""
_LEAVES_DOUBT: Final = frozenset(
    {
        ErrorCode.invalid_update_version,
        ErrorCode.fenced_leader_epoch,
        ErrorCode.not_controller,
        ErrorCode.new_leader_elected,
    }
)
"""Errors after which this proposal or an earlier one may be in force: a metadata update of the controller will show."""


class FollowerState(NamedTuple):
    """When a follower fetched and was caught up, by a clock that never goes back."""

    caught_up_at: float
    """When it last had all records of the leader."""
    fetched_at: float
    """When it last fetched."""
    leader_end: int
    """The leader's log end at that time."""


def check_epoch(leader_epoch: int, current_leader_epoch: int) -> None:
    """Refuse a client with an older or a newer leader epoch; it may name none."""
    if current_leader_epoch in (leader_epoch, NO_EPOCH):
        return
    if current_leader_epoch < leader_epoch:
        raise FencedLeaderEpoch(
            f"The request has leader epoch {current_leader_epoch}, but it is {leader_epoch}. Refresh the metadata."
        )
    raise UnknownLeaderEpoch(
        f"The request has leader epoch {current_leader_epoch}, but this broker still has {leader_epoch}. Try again."
    )


class PartitionLeader:
    """The state of one partition while this broker leads it."""

    __slots__ = (
        "_doubtful",
        "_ends",
        "_epochs",
        "_followers",
        "_ineligible",
        "_is_proposed",
        "_log_end_offset",
        "_pending",
        "_starts",
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
        """`counted` is the offset up to which the leader's own log counts, if the rest is still being synced."""
        self.broker_id = broker_id
        self.leader_epoch = leader_epoch
        self.partition_epoch = partition_epoch
        """The version of the partition's state that the controller committed; a proposal names it."""
        self.replicas = tuple(replicas)
        self.epoch_start_offset = log_end_offset
        """The log end when this leadership began. Until the high watermark is here, the last leader's was higher."""
        self.isr = frozenset(isr)
        """The ISR that the controller committed."""
        self.high_watermark = min(high_watermark, log_end_offset)
        self._log_end_offset = log_end_offset if counted is None else counted
        self._pending: frozenset[int] = frozenset()
        """Replicas that were proposed to join the ISR, and count until the controller has decided."""
        self._is_proposed = False
        """Whether a proposal has no answer yet."""
        self._doubtful = False
        """Whether the answer to an earlier proposal was lost."""
        self._ineligible: set[int] = set()
        """Followers that the controller refused, and that have not fetched since: they are not proposed again."""
        self._epochs: dict[int, int] = {}
        self._ends = {replica: UNKNOWN_OFFSET for replica in replicas if replica != broker_id}
        self.is_followed = bool(self._ends)
        """Whether the partition has replicas on other brokers."""
        self._starts = dict.fromkeys(self._ends, UNKNOWN_OFFSET)
        self._followers = {replica: FollowerState(now, now, UNKNOWN_OFFSET) for replica in self._ends}
        self._advance()

    @property
    def maximal_isr(self) -> frozenset[int]:
        """The replicas whose log end counts: the committed ISR, and those that were proposed to join it."""
        return self.isr | self._pending

    def accepts(self, acks: int, min_insync_replicas: int) -> bool:
        """Whether a Produce with these acks may be appended: with acks=all, enough replicas have to be in sync."""
        return len(self.isr) >= min_insync_replicas if acks == ACKS_ALL else acks == 1 or acks == 0

    @property
    def knows_high_watermark(self) -> bool:
        """Whether the high watermark has reached the start of this leadership; before, the last leader's was higher."""
        return self.high_watermark >= self.epoch_start_offset

    def counts(self, end_offset: int) -> bool:
        """Whether the leader's own log counts up to here: what is still being synced does not."""
        return end_offset <= self._log_end_offset

    def appended(self, log_end_offset: int) -> bool:
        """The leader's own log counts up to here; True if the high watermark moved.

        It may count further already: a sync that ends late takes nothing back.
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
        """A follower fetches from this offset on, so it has all records up to there; True if the high watermark moved.

        It is caught up now if it has all records of the leader. It was caught up when it last fetched, if it has all
        that the leader had then. A fetch of an earlier registration is ignored: its disk may have lost records since.
        """
        if broker_epoch != NO_BROKER_EPOCH:
            if broker_epoch < self._epochs.get(replica, NO_BROKER_EPOCH):
                return False
            self._epochs[replica] = broker_epoch
        if self._ineligible:
            self._ineligible.discard(replica)
        self._ends[replica] = log_end_offset
        self._starts[replica] = log_start_offset
        caught_up_at, fetched_at, leader_end = self._followers[replica]
        if log_end_offset >= self._log_end_offset:
            caught_up_at = now
        elif leader_end != UNKNOWN_OFFSET and log_end_offset >= leader_end:
            caught_up_at = max(caught_up_at, fetched_at)
        state = caught_up_at, now, self._log_end_offset
        self._followers[replica] = tuple.__new__(FollowerState, state)  # without its checks
        return self.high_watermark != self._log_end_offset and self._advance()

    def is_at_rest(self, replica: int, broker_epoch: int, log_end_offset: int, log_start_offset: int) -> bool:
        """Whether another such fetch of a follower could change nothing but when it fetched.

        It is in sync, has everything, and all of it is committed: while that is so, it cannot lag. Before that changes,
        `fetched_at_rest` has to tell when the follower fetched last.
        """
        return (
            log_end_offset == self._log_end_offset == self.high_watermark == self._ends.get(replica)
            and replica in self.isr
            and self._starts[replica] == log_start_offset
            and self._epochs.get(replica, NO_BROKER_EPOCH) == broker_epoch
        )

    def fetched_at_rest(self, replica: int, now: float) -> None:
        """A follower that was at rest until now fetched last at this time."""
        caught_up_at = max(now, self._followers[replica].caught_up_at)
        self._followers[replica] = FollowerState(caught_up_at, caught_up_at, self._log_end_offset)

    def end_of(self, replica: int) -> int:
        """The log end of a follower; UNKNOWN_OFFSET before it has fetched."""
        return self._ends.get(replica, UNKNOWN_OFFSET)

    def has(self, replica: int, offset: int) -> bool:
        """Whether a follower is known to have the records at `offset`: its log may start later, or end before."""
        return 0 <= self._starts.get(replica, UNKNOWN_OFFSET) <= offset <= self._ends[replica]

    def low_watermark(self, log_start_offset: int, up: Container[int]) -> int:
        """The lowest log start of all brokers that are up; the leader's own log begins at `log_start_offset`.

        UNKNOWN_OFFSET until all of them have fetched.
        """
        return min((log_start_offset, *(start for replica, start in self._starts.items() if replica in up)))

    def may_join(self, replica: int) -> bool:
        """Whether a follower outside the ISR has all committed records, and all records of earlier leaderships."""
        end = self._ends.get(replica, UNKNOWN_OFFSET)
        return (
            replica not in self._pending
            and replica not in self._ineligible
            and end >= self.high_watermark
            and end >= self.epoch_start_offset
        )

    def lagging(self, now: float, max_lag: float, max_messages: int | None = None) -> frozenset[int]:
        """Followers that count as in sync, but were not caught up for `max_lag` or are over `max_messages` behind.

        A follower that has all records never lags, however long ago it fetched.
        """
        end = self._log_end_offset
        return frozenset(
            replica
            for replica in self.maximal_isr
            if replica != self.broker_id
            and replica in self._ends
            and self._ends[replica] != end
            and (
                now - self._followers[replica].caught_up_at > max_lag
                or (max_messages is not None and end - self._ends[replica] > max_messages)
            )
        )

    def next_isr(self, now: float, max_lag: float, max_messages: int | None = None) -> tuple[int, ...] | None:
        """The ISR to propose: without followers that lag, with those that may join. None if nothing has to change.

        It is the present ISR when only the doubt about an earlier proposal has to be ended.
        """
        lagging = self.lagging(now, max_lag, max_messages)
        members = self.isr | (self._pending - self._ineligible)
        wanted = tuple(
            replica
            for replica in self.replicas
            if replica not in lagging and (replica in members or self.may_join(replica))
        )
        return wanted if self._pending or self.isr != frozenset(wanted) else None

    def broker_epochs(self, isr: Collection[int]) -> tuple[int, ...]:
        """The broker epoch with which each replica fetched last."""
        return tuple(self._epochs.get(replica, NO_BROKER_EPOCH) for replica in isr)

    @property
    def is_undecided(self) -> bool:
        """Whether an ISR was proposed of which it is not known what became: the last one, or one before it."""
        return self._is_proposed or self._doubtful

    def propose(self, replicas: Collection[int]) -> None:
        """Propose this ISR: replicas that join count from now on, replicas that leave until the controller agrees."""
        self._doubtful |= self._is_proposed
        self._is_proposed = True
        self._pending |= frozenset(replicas) - self.isr

    def refused(self, code: ErrorCode) -> None:
        """The controller refused the last proposal: its replicas count no more, unless an earlier one is in doubt.

        A follower that the controller refused must not keep another from leaving: the next proposal is without it.
        """
        if code in _LEAVES_DOUBT:
            return
        if code is ErrorCode.ineligible_replica:
            self._ineligible |= self._pending
        self._is_proposed = False
        if not self._doubtful:
            self._pending = frozenset()

    def commit_isr(self, isr: Collection[int], partition_epoch: int) -> bool:
        """The controller committed an ISR, so no proposal is pending any more; True if the high watermark moved.

        A state that is old or known already is ignored: it does not show what became of a proposal.
        """
        if partition_epoch <= self.partition_epoch:
            return False
        self.isr = frozenset(isr)
        self.partition_epoch = partition_epoch
        self._pending = frozenset()
        self._is_proposed = self._doubtful = False
        return self._advance()

    def check_epoch(self, current_leader_epoch: int) -> None:
        """Refuse a client with an older or a newer leader epoch."""
        if current_leader_epoch != self.leader_epoch:
            check_epoch(self.leader_epoch, current_leader_epoch)

    def _advance(self) -> bool:
        """Move the high watermark up to what all replicas have that count; True if it moved."""
        lowest = self._log_end_offset
        for replica, end in self._ends.items():
            if end < lowest and (replica in self.isr or replica in self._pending):
                lowest = end
        if lowest <= self.high_watermark:
            return False
        self.high_watermark = lowest
        return True
