"""Logs on a disk that forgets: after every crash, an intact prefix with at least what was flushed.

Each run is decided by its seed: what is written, when it is flushed, when the power goes off (in the middle of any file
operation), and which unsynced bytes and names survive. Every run goes through several crashes.
"""

from __future__ import annotations

import contextlib
import random
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from barnabas.model.clock import ManualClock
from barnabas.model.log_config import LogConfig
from barnabas.protocol.records.batch import CRC_START, read_header
from barnabas.protocol.records.checksum import crc32c
from barnabas.storage.check import check
from tests.support.faulty_files import FaultyFiles, PowerLoss
from tests.support.logs import NOW, TOPIC_ID, TP, StepManager, batch, read_bytes, stored
from tests.support.memory import parent_in_memory

if TYPE_CHECKING:
    from collections.abc import Iterator

    from barnabas.storage.log.log import Log

CRASHES = 3
STEPS = 25


class Run:
    """One broker's life: writes, flushes, crashes; and what must be there afterwards."""

    def __init__(self, root: Path, seed: int, *, flush_each: bool) -> None:
        self.chance = random.Random(seed)
        self.root = root
        self.files = FaultyFiles(root)
        self.clock = ManualClock(NOW)
        self.flush_each = flush_each
        self.config = LogConfig(
            segment_bytes=self.chance.choice((700, 1500, 4000)),
            index_interval_bytes=self.chance.choice((1, 200, 1000)),
            flush_messages=1 if flush_each else 2**63 - 1,
            file_delete_delay_ms=0,
        )
        self.history: list[bytes] = []
        """Every batch as it was stored; a crash cuts it."""
        self.certain = 0
        """Everything before this offset must survive a power loss."""
        self.deleted = 0
        """Records before this offset were deleted; they may come back, but nobody asks for them."""
        self.epoch = 0
        self.sequences = {1: 0, 2: 0}

    def start(self) -> Log:
        self.manager = StepManager(self.root, self.files, self.clock).start({TP.topic: self.config})
        return self.manager.create(TP, TOPIC_ID, self.config)

    def live(self) -> None:
        """Do things until the power goes off; if it stays on, maybe stop cleanly."""
        log = self.start()
        self.check(log, everything=False)
        self.files.crash_in = self.chance.randint(0, 150)
        for _ in range(STEPS):
            self.step(log)
        if self.chance.random() < 0.7:
            end = log.log_end_offset
            self.manager.close()
            self.certain = end

    def step(self, log: Log) -> None:
        kind = self.chance.random()
        if kind < 0.7:
            self.append(log)
        elif kind < 0.75:
            self.cut(log)
        elif kind < 0.85:
            log.flush()
            self.certain = max(self.certain, log.recovery_point)
        elif kind < 0.92:
            self.manager.checkpoint()
        elif kind < 0.96:
            log.high_watermark = log.log_end_offset
            log.delete_records_before(self.chance.randint(log.log_start_offset, log.log_end_offset))
            self.deleted = max(self.deleted, log.log_start_offset)
            self.manager.retention_pass(self.clock.now_ms())
            self.manager.delete_due(self.clock.now_ms())
        else:
            self.epoch += 1
        if self.chance.random() < 0.5:
            self.manager.drain()

    def append(self, log: Log) -> None:
        producer = self.chance.choice((-1, 1, 2))
        count = self.chance.randint(1, 4)
        data = batch(
            count,
            size=self.chance.choice((1, 50, 140)),
            timestamp=NOW + self.chance.randint(0, 1000),
            producer_id=producer,
            sequence=self.sequences.get(producer, 0),
        )
        end = log.log_end_offset
        placed = end.to_bytes(8, "big") + data[8:12] + self.epoch.to_bytes(4, "big") + data[16:]
        self.history.append(placed)
        info = log.append(data, leader_epoch=self.epoch, now_ms=NOW)
        assert info.base_offset == end
        if producer > 0:
            self.sequences[producer] += count
        if self.flush_each:
            done = self.manager.flush_through(log, info.last_offset + 1)
            self.manager.drain()
            assert done.result(timeout=0) >= info.last_offset + 1
            self.certain = log.recovery_point

    def cut(self, log: Log) -> None:
        """As a follower whose leader has less; what comes next is of another epoch."""
        offset = self.chance.randint(max(log.log_start_offset, log.log_end_offset - 8), log.log_end_offset)
        kept = [data for data in self.history if read_header(data).last_offset < offset]
        self.certain = min(self.certain, read_header(kept[-1]).last_offset + 1 if kept else 0)
        log.truncate_to(offset)
        self.history = kept
        self.deleted = min(self.deleted, log.log_end_offset)
        self.epoch += 1
        for producer in self.sequences:
            known = {each.producer_id: each.last_sequence for each in log.producers.describe()}
            self.sequences[producer] = known.get(producer, -1) + 1

    def check(self, log: Log, *, everything: bool) -> None:
        """The log holds a run of the history: from its start to at least what is certain."""
        found = stored(log)
        for data in found:
            assert read_header(data).crc == crc32c(data[CRC_START:])
        before = [data for data in self.history if read_header(data).last_offset < log.log_start_offset]
        kept = self.history[: len(before) + len(found)]
        assert before + found == kept
        assert log.log_end_offset >= self.certain
        if everything:
            assert kept == self.history
        end = read_header(kept[-1]).last_offset + 1 if kept else 0
        assert log.log_end_offset == max(end, log.log_start_offset)
        for data in found:
            header = read_header(data)
            offset = max(header.base_offset, log.log_start_offset)
            if offset >= self.deleted:
                assert log.epoch_at(offset) == header.leader_epoch
            assert read_header(read_bytes(log, offset)).base_offset == header.base_offset
        self.check_times(log, found)
        assert check(self.root).errors == []
        self.history = kept
        self.certain = min(self.certain, log.log_end_offset)
        self.check_producers(log)

    def check_times(self, log: Log, found: list[bytes]) -> None:
        """Records are found by time, so the time indexes are complete."""
        records = [
            (header.base_timestamp + number, header.base_offset + number)
            for header in map(read_header, found)
            for number in range(header.record_count)
            if header.base_offset + number >= log.log_start_offset
        ]
        for timestamp in (NOW, NOW + 500, max(records, default=(NOW, 0))[0]):
            expected = next((record for record in records if record[0] >= timestamp), None)
            result = log.offset_for_time(timestamp, up_to=log.log_end_offset)
            assert (result and result[:2]) == expected

    def check_producers(self, log: Log) -> None:
        """The last batch of each producer, sent again, is known."""
        for producer in self.sequences:
            mine = [data for data in self.history if read_header(data).producer_id == producer]
            self.sequences[producer] = (read_header(mine[-1]).last_sequence + 1) if mine else 0
            if mine and read_header(mine[-1]).base_offset >= log.log_start_offset:
                info = log.append(mine[-1], leader_epoch=self.epoch, now_ms=NOW)
                assert info.duplicate
                assert info.base_offset == read_header(mine[-1]).base_offset

    def stop(self) -> None:
        self.manager.close()
        assert check(self.root).findings == []

    def crash(self, *, power: bool) -> None:
        if power:
            self.files.power_loss(self.chance.getrandbits(32))
        else:
            self.files.kill()


@pytest.fixture
def disk() -> Iterator[Path]:
    """A directory in memory, where the system has such: these tests make many thousand files."""
    with tempfile.TemporaryDirectory(dir=parent_in_memory()) as path:
        yield Path(path)


def new_run(disk: Path, seed: int, *, flush_each: bool) -> Run:
    root = disk / str(seed)
    root.mkdir()
    return Run(root, seed, flush_each=flush_each)


@pytest.mark.parametrize("group", range(12))
@pytest.mark.parametrize("flush_each", [False, True], ids=["flush sometimes", "flush each"])
def test_what_was_flushed_survives_power_loss(disk: Path, group: int, flush_each: bool) -> None:
    for seed in range(group * 10, group * 10 + 10):
        run = new_run(disk, seed, flush_each=flush_each)
        for _ in range(CRASHES):
            with contextlib.suppress(PowerLoss):
                run.live()
            run.crash(power=True)
        run.check(run.start(), everything=False)
        run.stop()


@pytest.mark.parametrize("group", range(4))
def test_what_was_acknowledged_survives_a_killed_process(disk: Path, group: int) -> None:
    for seed in range(group * 10, group * 10 + 10):
        run = new_run(disk, seed, flush_each=False)
        for _ in range(CRASHES):
            log = run.start()
            run.check(log, everything=True)
            for _ in range(STEPS):
                run.step(log)
            run.crash(power=False)
        run.check(run.start(), everything=True)
        run.stop()
