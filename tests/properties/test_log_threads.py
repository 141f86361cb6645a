"""One thread appends, as the event loop does, while others read, search, flush and remove old segments."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.model.clock import ManualClock
from barnabas.model.errors import OffsetOutOfRange
from barnabas.model.log_config import LogConfig
from barnabas.protocol.records.batch import CRC_START, read_header
from barnabas.protocol.records.checksum import crc32c
from barnabas.storage.check import check
from barnabas.storage.manager import LogManager
from tests.support.logs import (
    NOW,
    TOPIC_ID,
    TP,
    UnsyncedFiles,
    append,
    batch,
    new_log,
    oldest,
    recovered,
    split,
    stored,
)
from tests.support.threads import Threads

if TYPE_CHECKING:
    import random
    from collections.abc import Callable
    from pathlib import Path

    from barnabas.storage.log.log import Log

BATCHES = 1500
CONFIG = LogConfig(segment_bytes=8000, index_interval_bytes=300, file_delete_delay_ms=0)


def reader(log: Log) -> Callable[[random.Random], None]:
    def read(chance: random.Random) -> None:
        up_to = log.high_watermark
        offset = chance.randint(log.log_start_offset, max(log.log_start_offset, up_to))
        if chance.random() < 0.5:
            offset = max(up_to - 2, log.log_start_offset)
        try:
            result = log.read(offset, 5000, up_to, True)
        except OffsetOutOfRange:
            assert offset < log.log_start_offset
            return
        if not result.size:
            assert offset >= up_to
            return
        (part,) = result.slices
        try:
            part.file.acquire()
        except FileNotFoundError:
            assert offset < log.log_start_offset
            return
        data = part.file.read(part.length, part.position)
        part.file.release()
        batches = split(data)
        first, last = read_header(batches[0]), read_header(batches[-1])
        assert first.base_offset <= offset <= first.last_offset
        assert last.last_offset < up_to
        for each in batches:
            assert read_header(each).crc == crc32c(each[CRC_START:])

    return read


def test_many_threads_see_one_log(tmp_path: Path) -> None:
    manager = LogManager([tmp_path], clock=ManualClock(NOW), files=UnsyncedFiles(), max_open_files=16)
    manager.load(broker_id=1, cluster_id="test", configs={TP.topic: CONFIG})
    log = manager.create(TP, TOPIC_ID, CONFIG)

    def search(chance: random.Random) -> None:
        found = log.offset_for_time(NOW + chance.randint(0, BATCHES), up_to=log.high_watermark)
        assert found is None or NOW <= found.timestamp < NOW + BATCHES + 2

    def flush(_: random.Random) -> None:
        log.flush()
        manager.checkpoint()

    def remove(chance: random.Random) -> None:
        if len(log.segments) > 6:
            log.remove_segments(oldest(log, chance.randint(1, 2)), NOW)
            manager.delete_due(NOW)

    with Threads(reader(log), reader(log), search, flush, remove):
        for number in range(BATCHES):
            data = batch(2, size=chance_size(number), timestamp=NOW + number, producer_id=1, sequence=2 * number)
            append(log, data, epoch=number // 500)
            log.high_watermark = log.log_end_offset
    assert log.log_end_offset == 2 * BATCHES
    expected = stored(log)
    assert read_header(expected[-1]).last_offset == 2 * BATCHES - 1
    manager.close()
    assert check(tmp_path).findings == []
    assert not manager.failed_directories


def chance_size(number: int) -> int:
    return (number * 37) % 150


def test_what_is_known_of_producers_and_epochs_can_be_asked_while_it_changes(tmp_path: Path) -> None:
    log = new_log(tmp_path, CONFIG)

    def ask(_: random.Random) -> None:
        assert all(found.producer_id >= 0 for found in log.producers.describe())
        assert log.epoch_at(BATCHES) >= 0
        assert log.offset_for_epoch(log.latest_epoch).end_offset > 0

    append(log, batch(1, producer_id=0, timestamp=NOW))
    with Threads(ask, lambda _: log.producers.expire(NOW + 86_400_000 + log.log_end_offset - 50)):
        for number in range(1, BATCHES):
            append(log, batch(1, producer_id=number, timestamp=NOW + number), epoch=number)
            log.high_watermark = log.log_end_offset
            log.delete_records_before(max(number - 20, 0))


def test_readers_survive_truncation(tmp_path: Path) -> None:
    log = new_log(tmp_path, CONFIG)
    append(log, *(batch(2, size=50, timestamp=NOW + number) for number in range(100)))

    def search(chance: random.Random) -> None:
        log.offset_for_time(NOW + chance.randint(0, 100), up_to=log.log_end_offset)
        log.offset_of_max_timestamp()

    def flush(_: random.Random) -> None:
        log.flush()

    with Threads(search, flush):
        for number in range(150):
            log.truncate_to(log.log_end_offset - number % 50)
            append(log, *(batch(2, size=50, timestamp=NOW + number) for _ in range(number % 25)))
    before = stored(log)
    assert stored(recovered(log)) == before
