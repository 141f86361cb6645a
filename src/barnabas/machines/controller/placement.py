"""Where a new partition's replicas go: leaders in turn, followers shifted each round, racks filled evenly.

Brokers are put in a ring in which racks alternate. A topic's partitions are led by one broker after the other, from a
place of the ring that is the topic's own. A partition's followers come next in the ring, from a distance that grows by
one with every round, so that the followers of one leader are not always the same brokers. Among the candidates, a rack
with fewer replicas of the partition goes first.

So within a topic leaders per broker differ by at most one, and a partition has replicas in as many racks as it can.

Brokers that are away are taken last, when those that are up are too few: the topic has all of its replicas when they
come back.
"""

from __future__ import annotations

from collections import Counter
from itertools import zip_longest
from typing import TYPE_CHECKING

from barnabas.model.errors import InvalidReplicationFactor

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence


def place(
    racks: Mapping[int, str | None],
    start: int,
    partitions: Iterable[int],
    replication_factor: int,
    *,
    up: Collection[int] | None = None,
) -> list[tuple[int, ...]]:
    """Replicas of some partitions of a topic, leader first.

    `racks` names the brokers that may be used and where they stand, and `up` those of them that are not away; `start`
    is the place of the topic's first leader (counted on beyond the ring, it gives topics with the same leader other
    followers). Raises InvalidReplicationFactor if there are too few brokers.
    """
    if replication_factor > len(racks):
        raise InvalidReplicationFactor(
            f"Unable to replicate the partition {replication_factor} time(s): The target replication factor of "
            f"{replication_factor} cannot be reached because only {len(racks)} broker(s) are registered."
        )
    away = [] if up is None else ring({broker: rack for broker, rack in racks.items() if broker not in up})
    brokers = ring({broker: rack for broker, rack in racks.items() if broker not in away})
    if not brokers:
        raise InvalidReplicationFactor(
            f"Unable to replicate the partition {replication_factor} time(s): All brokers are currently fenced."
        )
    rack_of = _usable_racks(racks)
    size = len(brokers)
    present = min(replication_factor, size)
    return [
        (
            *_replicas(brokers, rack_of, (start + index) % size, start // size + index // size, present),
            *_in_turn(away, start + index, replication_factor - present),
        )
        for index in partitions
    ]


def _in_turn(brokers: Sequence[int], start: int, count: int) -> Iterable[int]:
    """So many brokers of a ring, from a place on."""
    return (brokers[(start + step) % len(brokers)] for step in range(count))


def ring(racks: Mapping[int, str | None]) -> list[int]:
    """The brokers in the order in which they lead: by id, but one rack after the other."""
    rack_of = _usable_racks(racks)
    by_rack: dict[str, list[int]] = {}
    for broker in sorted(racks):
        by_rack.setdefault(rack_of[broker], []).append(broker)
    rows = zip_longest(*(by_rack[rack] for rack in sorted(by_rack)))
    return [broker for row in rows for broker in row if broker is not None]


def _usable_racks(racks: Mapping[int, str | None]) -> dict[int, str]:
    """Racks by broker; if one broker does not say where it stands, all count as one rack."""
    known = {broker: rack for broker, rack in racks.items() if rack is not None}
    return known if len(known) == len(racks) else dict.fromkeys(racks, "")


def _replicas(
    brokers: Sequence[int], rack_of: Mapping[int, str], at: int, shift: int, replication_factor: int
) -> tuple[int, ...]:
    chosen = [brokers[at]]
    if replication_factor == 1:
        return tuple(chosen)
    others = len(brokers) - 1
    candidates = [brokers[(at + 1 + (shift + step) % others) % len(brokers)] for step in range(others)]
    in_rack = Counter([rack_of[chosen[0]]])
    while len(chosen) < replication_factor:
        follower = min(candidates, key=lambda broker: in_rack[rack_of[broker]])
        candidates.remove(follower)
        chosen.append(follower)
        in_rack[rack_of[follower]] += 1
    return tuple(chosen)
