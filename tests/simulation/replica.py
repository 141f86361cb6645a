"""A replica's log: it outlives its process, but the high watermark is only what was last checkpointed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.storage.log.epochs import EpochStart, LeaderEpochs

if TYPE_CHECKING:
    from barnabas.storage.log.epochs import EpochEnd
    from tests.simulation.promises import Record


class ReplicaLog:
    """Records and their epochs."""

    def __init__(self) -> None:
        self.records: list[Record] = []
        self.epochs = LeaderEpochs()
        self.high_watermark = 0
        self.checkpoint = 0

    @property
    def end(self) -> int:
        """The offset of the next record."""
        return len(self.records)

    def append(self, record: Record) -> None:
        """As leader or follower."""
        if record.epoch > self.epochs.latest:
            self.epochs.assign(record.epoch, self.end)
        self.records.append(record)

    def truncate(self, end: int) -> None:
        """Cut what lies at `end` or after it."""
        del self.records[end:]
        self.epochs.truncate_from_end(end)
        self.high_watermark = min(self.high_watermark, end)
        self.checkpoint = min(self.checkpoint, end)

    def end_of(self, epoch: int) -> EpochEnd:
        """Where an epoch ends here."""
        return self.epochs.end_offset(epoch, self.end)

    def recover(self) -> None:
        """After a crash: epochs are read from the records, and one that has none is forgotten."""
        self.high_watermark = self.checkpoint
        starts: list[EpochStart] = []
        for offset, record in enumerate(self.records):
            if not starts or record.epoch > starts[-1].epoch:
                starts.append(EpochStart(record.epoch, offset))
        self.epochs = LeaderEpochs(starts)
