"""A log against a list: whatever is done to it, it holds what the list holds."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from barnabas.model.errors import OffsetOutOfRange
from barnabas.model.log_config import LogConfig
from barnabas.protocol.records.batch import read_header
from tests.support.logs import NOW, batch, new_log, oldest, read_bytes, recovered, reopened, split, stored

BATCHES = st.lists(st.tuples(st.integers(1, 5), st.integers(0, 60), st.integers(0, 1000)), min_size=1, max_size=8)


class LogAndList(RuleBasedStateMachine):
    """The list holds the batches as they are stored."""

    def __init__(self) -> None:
        super().__init__()
        self.temporary = tempfile.TemporaryDirectory()
        self.directory = Path(self.temporary.name)
        self.model: list[bytes] = []
        self.start = 0
        self.epoch = 0

    @initialize(segment=st.sampled_from([500, 1200, 5000]), interval=st.sampled_from([0, 100, 400]))
    def make(self, segment: int, interval: int) -> None:
        config = LogConfig(segment_bytes=segment, index_interval_bytes=interval, file_delete_delay_ms=0)
        self.log = new_log(self.directory, config)

    @property
    def end(self) -> int:
        return read_header(self.model[-1]).last_offset + 1 if self.model else self.start

    @rule(batches=BATCHES, gap=st.integers(0, 3))
    def append(self, batches: list[tuple[int, int, int]], gap: int) -> None:
        for count, size, late in batches:
            data = batch(count, size=size, timestamp=NOW + late)
            info = self.log.append(data, leader_epoch=self.epoch, now_ms=NOW)
            assert info.base_offset == self.end
            self.model.append(
                info.base_offset.to_bytes(8, "big") + data[8:12] + self.epoch.to_bytes(4, "big") + data[16:]
            )
        if gap == 3:
            data = batch(2)
            place = (self.end + gap).to_bytes(8, "big") + data[8:12] + self.epoch.to_bytes(4, "big")
            self.log.append_replica(place + data[16:], now_ms=NOW)
            self.model.append(place + data[16:])

    @rule()
    def new_epoch(self) -> None:
        self.epoch += 1

    @rule(share=st.floats(0, 1))
    def truncate(self, share: float) -> None:
        offset = self.start + round(share * (self.end - self.start))
        self.log.truncate_to(offset)
        self.model = [data for data in self.model if read_header(data).last_offset < offset]
        if self.end > self.log.log_end_offset:
            self.start = self.log.log_start_offset
        self.start = min(self.start, self.log.log_end_offset)

    @rule(before=st.integers(1, 5))
    def truncate_before_start(self, before: int) -> None:
        offset = max(self.start - before, 0)
        if offset < self.start:
            self.log.truncate_to(offset)
            self.model, self.start = [], offset

    @rule(after=st.integers(0, 5))
    def start_anew(self, after: int) -> None:
        offset = self.end + after
        self.log.truncate_fully(offset)
        self.model, self.start = [], offset

    @rule(before=st.integers(1, 5), count=st.integers(1, 5))
    def begin_within(self, before: int, count: int) -> None:
        start, base_offset = self.end, max(self.end - before, 0)
        if base_offset < start:
            data = batch(start - base_offset + count)
            placed = base_offset.to_bytes(8, "big") + data[8:12] + self.epoch.to_bytes(4, "big") + data[16:]
            self.log.start_within(placed, now_ms=NOW)
            self.model, self.start = [placed], start

    @rule(share=st.floats(0, 1))
    def delete(self, share: float) -> None:
        offset = self.start + round(share * (self.end - self.start))
        self.log.high_watermark = self.log.log_end_offset
        assert self.log.delete_records_before(offset) == offset
        self.start = offset

    @rule(count=st.integers(1, 3))
    def remove_segments(self, count: int) -> None:
        self.log.remove_segments(oldest(self.log, count), NOW)
        self.start = max(self.start, self.log.segments[0].base_offset)
        self.model = [data for data in self.model if read_header(data).last_offset >= self.log.segments[0].base_offset]

    @rule()
    def flush(self) -> None:
        assert self.log.flush() == self.log.log_end_offset

    @rule()
    def reopen(self) -> None:
        self.log = reopened(self.log)

    @rule()
    def crash(self) -> None:
        self.log = recovered(self.log)

    @rule(share=st.floats(0, 1), max_bytes=st.integers(0, 2000), min_one=st.booleans(), limit=st.floats(0, 1))
    def read(self, share: float, max_bytes: int, min_one: bool, limit: float) -> None:
        offset = self.start + round(share * (self.end - self.start))
        up_to = self.start + round(limit * (self.end - self.start))
        found = read_bytes(self.log, offset, max_bytes, up_to, min_one)
        wanted = [
            data
            for data in self.model
            if read_header(data).last_offset >= offset and offset < up_to and read_header(data).base_offset < up_to
        ]
        everything = b"".join(wanted)
        assert everything.startswith(found)
        least = len(wanted[0]) if wanted and min_one else 0
        assert least <= len(found) <= max(max_bytes, least)
        base = [read_header(data).base_offset for data in split(found)]
        assert base == sorted(base)

    @rule(share=st.floats(-0.1, 1.1))
    def search_by_time(self, share: float) -> None:
        timestamp = NOW + round(share * 1000)
        found = self.log.offset_for_time(timestamp, up_to=self.end)
        records = [
            (header.base_timestamp + number, header.base_offset + number)
            for header in map(read_header, self.model)
            for number in range(header.record_count)
            if header.base_offset + number >= self.start
        ]
        matching = [(time, offset) for time, offset in records if time >= timestamp]
        assert (None if found is None else (found.timestamp, found.offset)) == (matching[0] if matching else None)

    @invariant()
    def bounds_agree(self) -> None:
        if not hasattr(self, "log"):
            return
        assert (self.log.log_start_offset, self.log.log_end_offset) == (self.start, max(self.end, self.start))
        for offset in (self.start - 1, self.log.log_end_offset + 1):
            with pytest.raises(OffsetOutOfRange):
                self.log.read(offset, 1, self.log.log_end_offset, True)

    @invariant()
    def content_agrees(self) -> None:
        if not hasattr(self, "log"):
            return
        assert stored(self.log) == [data for data in self.model if read_header(data).last_offset >= self.start]

    def teardown(self) -> None:
        with self.temporary:
            if hasattr(self, "log"):
                self.log.close()


TestLog = LogAndList.TestCase
TestLog.settings = settings(max_examples=40, stateful_step_count=20, deadline=None)
