"""A compacted log that lives through everything, beside a dictionary that it must equal.

Every run is decided by its seed: what is written (plain, idempotent and transactional batches of all codecs, with
tombstones), when the log is cleaned, flushed and checkpointed, how much memory a cleaning has, when the clock moves,
and, if the test turns the power off, in the middle of which file operation. `check` compares the log with the history
of what was appended:

- every record is one of the history's, in its order, with its offset, timestamp, key and value;
- the last committed record of each key is there, so that reading the log gives the dictionary; a tombstone may be gone
  once delete.retention.ms has passed since a cleaning saw it;
- of aborted transactions, what is left is named by the transaction index, and whatever is left of a decided
  transaction is followed by its marker;
- every producer's last batch is known as a repetition; the examiner finds nothing wrong.
"""

from __future__ import annotations

import random
from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

from barnabas.model.clock import ManualClock
from barnabas.protocol.records.batch import CRC_START, read_header
from barnabas.protocol.records.checksum import crc32c
from barnabas.protocol.records.control import ControlType, EndOfTransaction, build_marker
from barnabas.storage.check import check
from barnabas.storage.cleaner.manager import CleanerManager
from barnabas.storage.cleaner.process import InThisProcess
from barnabas.storage.cleaner.task import CleanerLimits
from tests.support.compaction import Seen, compacted, keyed, records_of
from tests.support.faulty_files import FaultyFiles
from tests.support.logs import NOW, TOPIC_ID, TP, StepManager, stored

if TYPE_CHECKING:
    from pathlib import Path

    from barnabas.storage.log.log import Log

STEPS = 40
RETENTION_MS = 1000
PLAIN, IDEMPOTENT, TRANSACTIONAL = -1, (1, 2), (7, 8)


class Fate(Enum):
    """What became of a batch's transaction."""

    COMMITTED = "committed"
    ABORTED = "aborted"
    OPEN = "open"


class Appended(NamedTuple):
    """A batch of the history."""

    data: bytes
    """As it was given to the log, with its offset in place."""
    producer_id: int
    marker: ControlType | None
    transactional: bool

    @property
    def last_offset(self) -> int:
        return read_header(self.data).last_offset

    @property
    def base_offset(self) -> int:
        return read_header(self.data).base_offset


class CompactionRun:
    """One log's life."""

    def __init__(self, root: Path, seed: int) -> None:
        self.chance = random.Random(seed)
        self.root = root
        self.files = FaultyFiles(root)
        self.clock = ManualClock(NOW)
        self.config = compacted(
            segment_bytes=self.chance.choice((700, 1100, 2500)),
            index_interval_bytes=self.chance.choice((1, 200, 1000)),
            delete_retention_ms=RETENTION_MS,
            file_delete_delay_ms=self.chance.choice((0, 500)),
        )
        self.limits = CleanerLimits(
            memory=self.chance.choice((400, 2000, 1 << 20)),
            load_factor=1.0,
            chunk=self.chance.choice((100, 1000, 1 << 16)),
            bytes_per_second=1e300,
        )
        self.keys = [b"key %d" % number for number in range(self.chance.choice((3, 12)))] + [b"long" * 12]
        self.history: list[Appended] = []
        self.certain = 0
        """Everything before this offset must survive a power loss."""
        self.seen_by_cleaner: dict[int, int] = {}
        """When a cleaning that could have covered an offset was first begun."""
        self.cleanings = 0

    # Living

    def start(self) -> Log:
        """Load the log; it must not have forgotten anything that was certain."""
        self.manager = StepManager(self.root, self.files, self.clock).start({TP.topic: self.config})
        self.cleaner = CleanerManager(self.manager, self.clock)
        log = self.manager.create(TP, TOPIC_ID, self.config)
        self.history = [each for each in self.history if each.last_offset < log.log_end_offset]
        log.high_watermark = log.log_end_offset
        return log

    def live(self, log: Log, steps: int = STEPS) -> None:
        """Do things."""
        for _ in range(steps):
            self.step(log)

    def step(self, log: Log) -> None:
        kind = self.chance.random()
        if kind < 0.72:
            self.append(log)
        elif kind < 0.78:
            log.flush()
            self.certain = max(self.certain, log.recovery_point)
        elif kind < 0.82:
            self.manager.checkpoint()
        elif kind < 0.86:
            self.clock.advance(self.chance.choice((1, 400, 1500)))
            self.manager.delete_due(self.clock.now_ms())
        else:
            self.clean(log)
        if self.chance.random() < 0.5:
            self.manager.drain()
            self.certain = max(self.certain, log.recovery_point)

    def append(self, log: Log) -> None:
        producer = self.chance.choice((PLAIN, *IDEMPOTENT, *TRANSACTIONAL))
        marker = None
        if producer in TRANSACTIONAL and self.is_open(producer) and self.chance.random() < 0.6:
            marker = self.chance.choice((ControlType.ABORT, ControlType.COMMIT))
            data = build_marker(
                EndOfTransaction(marker, 0), timestamp=self.clock.now_ms(), producer_id=producer, producer_epoch=0
            )
        else:
            pairs = [
                (self.chance.choice(self.keys), self.chance.choice((None, b"", b"%d" % number, b"value" * 20)))
                for number in range(self.chance.randint(1, 5))
            ]
            data = keyed(
                pairs,
                timestamp=self.clock.now_ms() + self.chance.randint(-50, 50),
                codec=self.chance.choice((0, 0, 1, 2, 3, 4)),
                producer_id=producer,
                sequence=self.next_sequence(producer),
                transactional=producer in TRANSACTIONAL,
            )
        end = log.log_end_offset
        placed = end.to_bytes(8, "big") + data[8:12] + bytes(4) + data[16:]
        self.history.append(Appended(placed, producer, marker, producer in TRANSACTIONAL))
        assert log.append(data, leader_epoch=0, now_ms=self.clock.now_ms()).base_offset == end
        log.high_watermark = log.log_end_offset

    def clean(self, log: Log) -> None:
        """Clean what can be cleaned, in one pass of however many it takes."""
        now = self.clock.now_ms()
        for offset in range(log.log_end_offset):
            self.seen_by_cleaner.setdefault(offset, now)
        if self.cleaner.clean_next(InThisProcess(self.files), self.limits):
            self.cleanings += 1
        assert not self.cleaner.uncleanable

    def is_open(self, producer: int) -> bool:
        """Whether the producer has begun a transaction and not ended it."""
        mine = [each for each in self.history if each.producer_id == producer]
        return bool(mine) and mine[-1].marker is None

    def next_sequence(self, producer: int) -> int:
        """What an idempotent producer must send next."""
        if producer < 0:
            return -1
        mine = [each for each in self.history if each.producer_id == producer and each.marker is None]
        return read_header(mine[-1].data).last_sequence + 1 if mine else 0

    def crash(self, *, power: bool) -> None:
        """Turn the power off, or only end the process."""
        if power:
            self.files.power_loss(self.chance.getrandbits(32))
        else:
            self.files.kill()

    # Comparing

    def fates(self) -> dict[int, Fate]:
        """What became of each batch of data, by its base offset."""
        fates: dict[int, Fate] = {}
        pending: dict[int, list[int]] = {}
        for each in self.history:
            if each.marker is not None:
                fate = Fate.ABORTED if each.marker is ControlType.ABORT else Fate.COMMITTED
                fates.update(dict.fromkeys(pending.pop(each.producer_id, ()), fate))
            elif each.transactional:
                pending.setdefault(each.producer_id, []).append(each.base_offset)
            else:
                fates[each.base_offset] = Fate.COMMITTED
        fates.update({base: Fate.OPEN for bases in pending.values() for base in bases})
        return fates

    def check(self, log: Log) -> None:
        """Compare the log with its history; see the module's docstring."""
        batches = stored(log)
        assert all(read_header(batch).crc == crc32c(batch[CRC_START:]) for batch in batches)
        assert log.log_end_offset >= self.certain
        end = self.history[-1].last_offset + 1 if self.history else 0
        assert log.log_end_offset == end
        fates = self.fates()
        written = {record.offset: record for record in records_of([each.data for each in self.history])}
        found = records_of(batches)
        assert [written[record.offset] for record in found] == found, "records changed"
        assert [record.offset for record in found] == sorted({record.offset for record in found})
        fate_of = self.by_offset(fates)
        committed = [record for record in written.values() if fate_of[record.offset] is Fate.COMMITTED]
        self.check_last_records(committed, {record.offset for record in found})
        self.check_cleaned_part(log, [record for record in found if fate_of[record.offset] is Fate.COMMITTED])
        self.check_transactions(log, batches, fates)
        self.check_repetitions(log)
        assert check(self.root).errors == []

    def by_offset(self, fates: dict[int, Fate]) -> dict[int, Fate]:
        return {
            offset: fates[each.base_offset]
            for each in self.history
            if each.marker is None
            for offset in range(each.base_offset, each.last_offset + 1)
        }

    def check_last_records(self, committed: list[Seen], found: set[int]) -> None:
        last = {record.key: record for record in committed}
        for record in last.values():
            if record.offset not in found:
                assert record.value is None, f"{record} is lost"
                first_seen = self.seen_by_cleaner[record.offset]
                assert self.clock.now_ms() >= first_seen + RETENTION_MS, f"{record} went too soon"
        present = {record.key: record for record in committed if record.offset in found}
        expected = {key: record.value for key, record in last.items() if record.value is not None}
        assert {key: record.value for key, record in present.items() if record.value is not None} == expected

    def check_cleaned_part(self, log: Log, committed: list[Seen]) -> None:
        """Before the first dirty offset, a key is there once."""
        keys = [record.key for record in committed if record.offset < (log.cleaned_to or 0)]
        assert len(keys) == len(set(keys))

    def check_transactions(self, log: Log, batches: list[bytes], fates: dict[int, Fate]) -> None:
        aborted = [entry for segment in log.segments for entry in segment.txn_index.entries()]
        markers = {read_header(batch).base_offset for batch in batches if read_header(batch).is_control}
        for batch in batches:
            header = read_header(batch)
            if header.is_control or not header.is_transactional:
                continue
            fate = fates[header.base_offset]
            if fate is Fate.ABORTED and header.record_count:
                assert any(
                    entry.producer_id == header.producer_id
                    and entry.first_offset <= header.base_offset <= entry.last_offset
                    for entry in aborted
                ), f"nothing says that {header} was aborted"
            if fate is not Fate.OPEN:
                end = next(
                    each.base_offset
                    for each in self.history
                    if each.producer_id == header.producer_id
                    and each.marker is not None
                    and each.base_offset > header.base_offset
                )
                assert end in markers, f"the marker at {end} went before the data at {header.base_offset}"

    def check_repetitions(self, log: Log) -> None:
        for producer in (*IDEMPOTENT, *TRANSACTIONAL):
            mine = [each for each in self.history if each.producer_id == producer and each.marker is None]
            if mine:
                again = log.append(mine[-1].data, leader_epoch=0, now_ms=self.clock.now_ms())
                assert again.duplicate
                assert again.base_offset == mine[-1].base_offset

    def finish(self, log: Log) -> None:
        """Clean all, stop, and look once more: nothing but what must stay is left."""
        log.roll(self.clock.now_ms())
        log.flush()
        self.certain = log.recovery_point
        for _ in range(200):
            before = self.cleanings
            self.clean(log)
            if self.cleanings == before:
                break
        self.check(log)
        self.manager.close()
        self.check(self.start())
        self.manager.close()
        assert check(self.root).findings == []
