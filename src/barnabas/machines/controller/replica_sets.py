"""How a partition moves from some brokers to others.

    begun       its replicas are those it shall have and those it had; the ISR is as it was
    completed   those that came are in sync: those that shall go, go
    cancelled   those that came go, whether or not they are in sync

A reassignment that takes the place of another begins from where that one began: what the earlier one brought, and the
later one does not want, goes at once. Everyone in an ISR has all that is committed, so any part of it may go, but never
all of it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from barnabas.model.errors import InvalidReplicaAssignment, NoReassignmentInProgress

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from barnabas.machines.controller.image import PartitionImage


SAFE: Final = 2
"""So many replicas in sync keep what is acknowledged when one of them loses its power."""


def begun(partition: PartitionImage, target: Sequence[int]) -> PartitionImage:
    """The partition on its way to these replicas."""
    origin = set(partition.replicas) - set(partition.adding)
    adding, removing = sorted(set(target) - origin), sorted(origin - set(target))
    replicas = (*target, *removing)
    isr = tuple(replica for replica in partition.isr if replica in replicas)
    if partition.isr and not isr:
        raise InvalidReplicaAssignment(
            f"Only replicas {list(partition.isr)} are in sync, and none of them would be a replica any more."
        )
    return replace(partition, replicas=replicas, isr=isr, adding=tuple(adding), removing=tuple(removing))


def cancelled(partition: PartitionImage, *, unclean: bool) -> PartitionImage:
    """The partition on the replicas it had; `unclean` if one that is not in sync may then lead."""
    if not partition.is_reassigned:
        raise NoReassignmentInProgress("No partition reassignment is in progress.")
    replicas = tuple(replica for replica in partition.replicas if replica not in partition.adding)
    isr = tuple(replica for replica in partition.isr if replica not in partition.adding)
    if partition.isr and not isr:
        if not unclean:
            raise InvalidReplicaAssignment(
                "Unable to revert partition assignment because it would require an unclean leader election."
            )
        isr = replicas[:1]
    return replace(partition, replicas=replicas, isr=isr, adding=(), removing=())


def completed(partition: PartitionImage, up: Collection[int]) -> PartitionImage:
    """The partition on its new replicas, if they are in sync; otherwise as it is.

    When there will be fewer replicas than before, all of them must be in sync, so that the ISR does not shrink for it.
    And no replica in sync goes if that leaves one alone, unless there shall be no other: it may be about to lose its
    power, and the logs of those that go are deleted. Kafka with a ZooKeeper waits for all new replicas, and without one
    for those that came.
    """
    if not partition.is_reassigned:
        return partition
    replicas = tuple(replica for replica in partition.replicas if replica not in partition.removing)
    isr = tuple(replica for replica in partition.isr if replica not in partition.removing)
    needed = replicas if len(partition.adding) < len(partition.removing) else partition.adding
    if not set(isr).issuperset(needed) or not any(replica in up for replica in isr):
        return partition
    if len(isr) < min(len(partition.isr), len(replicas), SAFE):
        return partition
    return replace(partition, replicas=replicas, isr=isr, adding=(), removing=())
