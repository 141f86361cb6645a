"""A partition on its leader: who is in sync, how far everyone is, and what is therefore committed.

The high watermark is the lowest log end offset over the maximal ISR: the ISR that the controller committed, plus
replicas that were proposed for it and not yet confirmed. So an ISR that grows counts at once, and one that shrinks
counts only when the controller has agreed; whichever of the two the next leader is chosen from, it has everything below
the high watermark. A partition with one replica needs none of this: what is appended is committed.

Invariants: the high watermark never goes back, and never passes the leader's own log end.

One object stands for one leadership: a new leader epoch makes a new object.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from barnabas.model.errors import FencedLeaderEpoch, UnknownLeaderEpoch

if TYPE_CHECKING:
    from collections.abc import Collection

NO_EPOCH: Final = -1
"""As a client's current leader epoch: it names none, and nothing is checked."""
UNKNOWN_OFFSET: Final = -1
"""The log end of a replica that has not fetched since this leader took over."""


class PartitionLeader:
    """The state of one partition while this broker leads it."""

    __slots__ = (
        "_ends",
        "_log_end_offset",
        "_pending",
        "broker_id",
        "epoch_start_offset",
        "high_watermark",
        "isr",
        "leader_epoch",
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
    ) -> None:
        self.broker_id = broker_id
        self.leader_epoch = leader_epoch
        self.epoch_start_offset = log_end_offset
        """Where this leadership began: the high watermark says nothing reliable until it is here."""
        self.isr = frozenset(isr)
        """As the controller committed it."""
        self.high_watermark = min(high_watermark, log_end_offset)
        self._log_end_offset = log_end_offset
        self._pending: frozenset[int] = frozenset()
        self._ends = {replica: UNKNOWN_OFFSET for replica in replicas if replica != broker_id}
        self._advance()

    @property
    def maximal_isr(self) -> frozenset[int]:
        """Everyone whose log end counts: the committed ISR and what was proposed to join it."""
        return self.isr | self._pending

    @property
    def knows_high_watermark(self) -> bool:
        """Whether the high watermark has reached this leadership's start; before, the last leader knew more."""
        return self.high_watermark >= self.epoch_start_offset

    def last_stable_offset(self, first_unstable_offset: int | None) -> int:
        """Up to here every transaction is decided, if the oldest open one begins at `first_unstable_offset`."""
        if first_unstable_offset is None:
            return self.high_watermark
        return min(first_unstable_offset, self.high_watermark)

    def appended(self, log_end_offset: int) -> bool:
        """The leader's own log grew; True if the high watermark moved."""
        self._log_end_offset = log_end_offset
        if not self._ends:
            self.high_watermark = log_end_offset
            return True
        return self._advance()

    def fetched(self, replica: int, log_end_offset: int) -> bool:
        """A follower asks from this offset on, so it has all before; True if the high watermark moved."""
        self._ends[replica] = log_end_offset
        return self._advance()

    def propose(self, replicas: Collection[int]) -> None:
        """Ask the controller to take these replicas into the ISR: from now on they count."""
        self._pending = frozenset(replicas) - self.isr

    def commit_isr(self, isr: Collection[int]) -> bool:
        """The controller decided: nothing is pending any more; True if the high watermark moved."""
        self.isr = frozenset(isr)
        self._pending = frozenset()
        return self._advance()

    def check_epoch(self, current_leader_epoch: int) -> None:
        """Refuse a client that knows an older or a newer leadership than this one."""
        if current_leader_epoch == self.leader_epoch or current_leader_epoch == NO_EPOCH:
            return
        if current_leader_epoch < self.leader_epoch:
            raise FencedLeaderEpoch(
                f"the leader epoch is {self.leader_epoch}, the request knows {current_leader_epoch}: refresh metadata"
            )
        raise UnknownLeaderEpoch(
            f"the leader epoch is {self.leader_epoch} here, the request knows {current_leader_epoch} already; try again"
        )

    def _advance(self) -> bool:
        lowest = self._log_end_offset
        for replica, end in self._ends.items():
            if end < lowest and (replica in self.isr or replica in self._pending):
                lowest = end
        if lowest <= self.high_watermark:
            return False
        self.high_watermark = lowest
        return True
