"""Traffic: what clients and brokers wrote to the partitions of a topic here, and read from them, as plain integers.

The path of a request adds to an integer, and nothing else: whoever wants to see the figures reads them later
(`broker/metrics`). Of what a leader appends, only batches are counted one by one. Messages and bytes are what its log
has grown by while this broker led it: from the offset and the size at which the leadership began.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from barnabas.broker.replication.leader_partition import LeaderPartition


class Traffic:
    """Counters of one topic on this broker, or of all that are gone; they only grow."""

    __slots__ = (
        "batches",
        "bytes_in",
        "bytes_out",
        "failed_fetches",
        "fetches",
        "isr_expands",
        "isr_shrinks",
        "messages_in",
        "refused_batches",
        "replicated_in",
        "replicated_out",
    )

    def __init__(self) -> None:
        self.batches = 0
        """Batches that were appended by a leader; a Produce has one for each of its partitions."""
        self.refused_batches = 0
        self.messages_in = 0
        """Messages of leaderships that are over; `grown` has those of the others."""
        self.bytes_in = 0
        """Likewise."""
        self.bytes_out = 0
        """Bytes that were sent to consumers."""
        self.fetches = 0
        """Partitions of fetches that were answered with records or an error, or whose offsets have changed."""
        self.failed_fetches = 0
        self.replicated_in = 0
        """Bytes that were fetched from leaders."""
        self.isr_expands = 0
        """How often in-sync replicas of a partition that is led here became more, or fewer."""
        self.isr_shrinks = 0
        self.replicated_out = 0
        """Bytes that were sent to followers."""

    def add(self, other: Traffic) -> None:
        """Count what another one has counted."""
        for name in self.__slots__:
            setattr(self, name, getattr(self, name) + getattr(other, name))

    def copy(self) -> Traffic:
        """The same figures, which do not grow any more."""
        copied = Traffic()
        copied.add(self)
        return copied

    def note_isr(self, before: int, after: int) -> None:
        """A partition that is led here has another number of replicas in sync."""
        self.isr_expands += after > before
        self.isr_shrinks += after < before

    def settle(self, partition: LeaderPartition) -> None:
        """A leadership is over: keep what its log has grown by."""
        messages, size = grown(partition)
        self.messages_in += messages
        self.bytes_in += size


UNCOUNTED = Traffic()
"""For partitions that no request can find yet."""


def grown(partition: LeaderPartition) -> tuple[int, int]:
    """Messages and bytes that were appended in the present leadership."""
    log = partition.log
    messages = log.log_end_offset - partition.first_offset
    return max(messages, 0), max(log.written_bytes - partition.first_byte, 0)
