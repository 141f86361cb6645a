"""What must hold at every moment, whatever happens (as long as no unclean election is allowed).

    one leader      a leader epoch of a partition has one leader
    answered        a record that was acknowledged is at its offset
    kept            what was once below a leader's high watermark is there for ever, the same at every offset
    in sync         everyone in the stored ISR has all of it

A record is committed when the first leader moves its high watermark past it: then it may have been acknowledged, and a
consumer may have read it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

    from barnabas.machines.controller.image import PartitionImage
    from tests.simulation.replica import ReplicaLog


class Record(NamedTuple):
    """What a leader wrote."""

    epoch: int
    value: int


class Broken(AssertionError):
    """A promise was broken."""


class Promises:
    """Remembers what was promised, and looks whether it holds."""

    def __init__(self, logs: Mapping[tuple[int, int], ReplicaLog]) -> None:
        self._logs = logs
        """By broker and partition."""
        self._leaders: dict[tuple[int, int], int] = {}
        self._stored: dict[int, PartitionImage] = {}
        self.committed: dict[int, list[Record]] = {}
        self.waited_on = 0
        """Records that were acknowledged in a later leader epoch than they were written in."""

    def leads(self, partition: int, epoch: int, broker: int) -> None:
        """A broker begins to lead."""
        other = self._leaders.setdefault((partition, epoch), broker)
        if other != broker:
            raise Broken(f"brokers {other} and {broker} both lead {partition} in epoch {epoch}")

    def has_committed(self, partition: int, log: ReplicaLog, high_watermark: int) -> None:
        """A leader moves its high watermark."""
        committed = self.committed.setdefault(partition, [])
        known = min(len(committed), high_watermark)
        if log.records[:known] != committed[:known]:
            raise Broken(f"{partition} has other records below {known} than were committed: {log.records[:known]}")
        committed.extend(log.records[known:high_watermark])
        self.look(partition)

    def acknowledges(self, partition: int, offset: int, record: Record, epoch: int) -> None:
        """A leader acknowledges a record."""
        found = self.committed[partition][offset]
        if found != record:
            raise Broken(f"{record} was acknowledged at {offset} of {partition}, and there is {found}")
        self.waited_on += record.epoch < epoch

    def stores(self, before: PartitionImage, after: PartitionImage) -> None:
        """The controller's decision becomes true."""
        if after.partition_epoch != before.partition_epoch + 1:
            raise Broken(f"{before} became {after}: the partition epoch is not the next one")
        if after.leader_epoch < before.leader_epoch:
            raise Broken(f"{before} became {after}: the leader epoch went back")
        if after.leader != before.leader and after.leader_epoch == before.leader_epoch:
            raise Broken(f"{before} became {after}: another leader in the same epoch")
        self._stored[after.index] = after
        self.look(after.index)

    def look(self, partition: int) -> None:
        """Everyone in sync has what is committed."""
        stored = self._stored.get(partition)
        if stored is None:
            return
        committed = self.committed.get(partition, [])
        for broker in stored.isr:
            log = self._logs.get((broker, partition))
            if log is None or log.records[: len(committed)] != committed:
                found = [] if log is None else log.records
                raise Broken(f"broker {broker} is in sync in {stored}, has {found} and lacks some of {committed}")
