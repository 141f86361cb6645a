"""Who leads a partition and who is in sync, given which brokers are up: the one place where that is decided.

A leader comes from the in-sync replicas: the one that leads now if it can go on, otherwise the first in the order of
the replicas. If none of them is up the partition has no leader, and its ISR stays as it was: those replicas alone hold
all committed records. Where the topic allows it, any replica that is up then leads (an unclean election), and it alone
is in sync.

A broker that is about to stop leads nothing, and is in sync nowhere, unless there is no other replica.

Invariants: a leader epoch has one leader, since every change that the controller makes raises it; the partition epoch
is raised with every change; an ISR only becomes smaller, it is never empty, and it grows by its leader's word alone.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from barnabas.machines.controller.image import NO_LEADER, PartitionImage
from barnabas.machines.controller.replica_sets import completed

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

NO_STATE = -1
"""As a partition epoch: the partition is assigned, but nothing of its leadership is stored yet."""
NOBODY: frozenset[int] = frozenset()


class Live(NamedTuple):
    """Who can hold a replica of a partition now, and how an election is to go."""

    up: frozenset[int]
    leaving: frozenset[int] = NOBODY
    """Those of them that are about to stop."""
    unclean: bool = False
    """Whether a replica may lead that is not in sync."""
    preferred: bool = False
    """Whether the first replica is to lead, if it is in sync, although another one could go on."""

    def best(self) -> Iterator[frozenset[int]]:
        """Who is to be preferred, then who will do."""
        yield self.up - self.leaving
        yield self.up


def new_partition(index: int, replicas: tuple[int, ...], up: Collection[int]) -> PartitionImage:
    """A partition's first state: everyone that is up is in sync, because there is nothing to have missed.

    If none is up it has no state (NO_STATE) until the first replica is.
    """
    isr = tuple(replica for replica in replicas if replica in up)
    if not isr:
        return PartitionImage(index, NO_LEADER, NO_STATE, replicas, (), NO_STATE)
    return PartitionImage(index, isr[0], 0, replicas, isr)


def elect(partition: PartitionImage, live: Live) -> PartitionImage:
    """The partition with the brokers that are up; the same object if nothing is different."""
    up, leaving = live.up, live.leaving
    if partition.leader in up and up.issuperset(partition.isr) and not leaving and not partition.is_reassigned:
        return partition
    if partition.partition_epoch == NO_STATE:
        started = new_partition(partition.index, partition.replicas, live.up)
        if started.partition_epoch == NO_STATE:
            return partition
        return replace(started, adding=partition.adding, removing=partition.removing)
    return settle(partition, partition, live)


def elect_after_restart(partition: PartitionImage, live: Live, restarted: frozenset[int]) -> PartitionImage:
    """As `elect`, but some of those that are up were away meanwhile.

    They may have lost what they had not synced, and know no longer what they proposed. So others go first; and if there
    are none they go on in a new epoch, in which their new records cannot be mistaken for those of before.
    """
    if len(partition.replicas) == 1 or partition.leader == NO_LEADER or restarted.isdisjoint(partition.isr):
        return elect(partition, live)
    without = settle(partition, partition, live._replace(up=live.up - restarted, unclean=False))
    after = settle(without, without, live)
    return replace(after, leader_epoch=partition.leader_epoch + 1, partition_epoch=partition.partition_epoch + 1)


def move(partition: PartitionImage, live: Live) -> PartitionImage:
    """Another replica in sync leads, or the same one in a new leader epoch if there is no other."""
    isr = _in_sync(partition, live)
    order = [*(replica for replica in partition.replicas if replica != partition.leader), partition.leader]
    return replace(
        partition,
        leader=next((replica for replica in order if replica in isr and replica in live.up), NO_LEADER),
        isr=isr,
        leader_epoch=partition.leader_epoch + 1,
        partition_epoch=partition.partition_epoch + 1,
    )


def settle(before: PartitionImage, wanted: PartitionImage, live: Live, *, by_leader: bool = False) -> PartitionImage:
    """From `before` to the ISR and the replicas that are wanted, with a leader; the same object if that is no change.

    A change `by_leader` raises the leader epoch only if it ends a reassignment, and is always one: even the same ISR,
    proposed again, voids what its leader proposed earlier.
    """
    wanted = completed(replace(wanted, isr=_in_sync(wanted, live)), live.up)
    leader, clean = _leader(wanted, live)
    after = replace(wanted, leader=leader) if clean else replace(wanted, leader=leader, isr=(leader,))
    if after == before and not by_leader:
        return before
    same_leadership = by_leader and leader == before.leader and after.replicas == before.replicas
    return replace(
        after,
        leader_epoch=before.leader_epoch if same_leadership else before.leader_epoch + 1,
        partition_epoch=before.partition_epoch + 1,
    )


def _in_sync(partition: PartitionImage, live: Live) -> tuple[int, ...]:
    """The ISR without replicas that are not up, as long as one is left."""
    members = tuple(replica for replica in partition.isr if replica in partition.replicas)
    for able in live.best():
        if kept := tuple(replica for replica in members if replica in able):
            return kept
    return members or partition.isr


def _leader(partition: PartitionImage, live: Live) -> tuple[int, bool]:
    """Who leads, and whether that is clean."""
    order = (partition.leader, *partition.replicas)
    if live.preferred:
        order = (partition.replicas[0], *order)
    for able in live.best():
        for replica in order:
            if replica in able and replica in partition.isr:
                return replica, True
    if live.unclean:
        for able in live.best():
            for replica in partition.replicas:
                if replica in able:
                    return replica, False
    return NO_LEADER, True
