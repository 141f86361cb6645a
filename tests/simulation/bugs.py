"""Mistakes that someone could make in the rules, each planted on purpose to see that a run finds it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from barnabas.machines import divergence
from barnabas.machines.controller.topics import TopicDefaults
from barnabas.machines.divergence import TruncationPoint
from barnabas.machines.partition import PartitionLeader
from barnabas.model.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Callable, Collection


@dataclass(frozen=True)
class Mistakes:
    """The rules that a run uses; by default there are no mistakes."""

    leader: type[PartitionLeader] = PartitionLeader
    cut: Callable[..., TruncationPoint] = divergence.truncation_point
    defaults: TopicDefaults = field(default_factory=TopicDefaults)
    guarded: bool = True
    """Whether the tree looks at the term of a controller that writes."""
    waits_end: bool = True
    """Whether a wait for a record ends when its leader leads no more."""


class _AcksAtOnce(PartitionLeader):
    def appended(self, log_end_offset: int) -> bool:
        super().appended(log_end_offset)
        self.high_watermark = log_end_offset
        return True


class _LetsAnyoneJoin(PartitionLeader):
    def may_join(self, replica: int) -> bool:
        return replica in self.replicas


class _CountsNobodyThatIsProposed(PartitionLeader):
    def propose(self, replicas: Collection[int]) -> None:
        """What is proposed counts when it is committed."""


class _CountsNobodyThatIsToGo(PartitionLeader):
    def propose(self, replicas: Collection[int]) -> None:
        super().propose(replicas)
        self.isr &= frozenset(replicas)


class _BelievesAnOldIsr(PartitionLeader):
    def commit_isr(self, isr: Collection[int], partition_epoch: int) -> bool:
        self.partition_epoch = min(self.partition_epoch, partition_epoch - 1)
        return super().commit_isr(isr, partition_epoch)


class _ForgetsWhatWasNotAnswered(PartitionLeader):
    def propose(self, replicas: Collection[int]) -> None:
        self._pending = frozenset()
        super().propose(replicas)


class _TakesEveryErrorForANo(PartitionLeader):
    def refused(self, code: ErrorCode) -> None:
        super().refused(ErrorCode.ineligible_replica)


def _cut_at_high_watermark(*, log_end: int, high_watermark: int, **_: Any) -> TruncationPoint:
    return TruncationPoint(min(high_watermark, log_end), True)


def _cut_nothing(*, log_end: int, **_: Any) -> TruncationPoint:
    return TruncationPoint(log_end, True)


BUGS = {
    "acks before replication": Mistakes(leader=_AcksAtOnce),
    "a replica in sync that lacks committed records": Mistakes(leader=_LetsAnyoneJoin),
    "a replica joins before it counts": Mistakes(leader=_CountsNobodyThatIsProposed),
    "a replica counts no more before it has left": Mistakes(leader=_CountsNobodyThatIsToGo),
    "an old ISR is believed": Mistakes(leader=_BelievesAnOldIsr),
    "a proposal without an answer is forgotten": Mistakes(leader=_ForgetsWhatWasNotAnswered),
    "every error is taken for a refusal": Mistakes(leader=_TakesEveryErrorForANo),
    "truncation to the high watermark": Mistakes(cut=_cut_at_high_watermark),
    "no truncation": Mistakes(cut=_cut_nothing),
    "a leader from outside the ISR": Mistakes(defaults=TopicDefaults(unclean_elections=True)),
    "a controller that was replaced writes": Mistakes(guarded=False),
    "a wait outlasts a leader that was replaced": Mistakes(waits_end=False),
}
