"""Fetch over real logs: what consumers get, and how long they wait."""

from __future__ import annotations

import asyncio
import errno
import os
import threading
from typing import TYPE_CHECKING, Any

import pytest

from barnabas.broker.handlers.fetch import fetch
from barnabas.model.errors import ErrorCode
from barnabas.net.reply import Parked
from barnabas.storage.files import FileSystem
from barnabas.storage.log.log import ColdRead, ReadResult
from barnabas.storage.log.reading import LogReader
from tests.support.fetching import NOW, ask, partition_of, partitions_in
from tests.support.images import CALLER
from tests.support.parts import answer_of, append, make_topic, run, running_parts
from tests.support.produce_fetch import fetch_request, fetched

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from barnabas.broker.context import BrokerContext
    from barnabas.storage.log.log import Log

VERSIONS = [4, 5, 7, 11, 12, 13, 18]


@pytest.mark.parametrize("version", VERSIONS)
async def test_records_come_back_in_every_version(tmp_path: Path, version: int) -> None:
    async def story(broker: BrokerContext) -> None:
        await make_topic(broker, "t")
        append(partition_of(broker), [NOW, NOW + 1])
        append(partition_of(broker), [NOW + 2])
        (answered,) = partitions_in(fetched(version, ask(broker, version, {0: 0})))
        assert (answered.error_code, answered.high_watermark) == (ErrorCode.none, 3)
        assert len(answered.records) == partition_of(broker).log.size
        (answered,) = partitions_in(fetched(version, ask(broker, version, {0: 2})))
        assert answered.records[:8] == (2).to_bytes(8, "big")

    await run(tmp_path, story)


async def test_a_fetch_waits_for_an_append_and_wakes_with_it(tmp_path: Path) -> None:
    async def story(broker: BrokerContext) -> None:
        await make_topic(broker, "t", partitions=2)
        parked = ask(broker, 12, {0: 0, 1: 0}, max_wait_ms=60_000)
        assert isinstance(parked, Parked)
        assert not parked.overtakable
        append(partition_of(broker, 1), [NOW])
        answered = partitions_in(fetched(12, await answer_of(parked)))
        assert [(one.partition_index, bool(one.records)) for one in answered] == [(0, False), (1, True)]

    await run(tmp_path, story)


async def test_a_fetch_gives_up_after_its_longest_wait(tmp_path: Path) -> None:
    async def story(broker: BrokerContext) -> None:
        await make_topic(broker, "t")
        parked = ask(broker, 12, {0: 0}, max_wait_ms=20)
        assert isinstance(parked, Parked)
        (answered,) = partitions_in(fetched(12, await answer_of(parked)))
        assert (answered.error_code, answered.records) == (ErrorCode.none, b"")

    await run(tmp_path, story)


async def test_a_fetch_waits_until_there_is_as_much_as_it_wants(tmp_path: Path) -> None:
    async def story(broker: BrokerContext) -> None:
        await make_topic(broker, "t")
        append(partition_of(broker), [NOW])
        size = partition_of(broker).log.size
        parked = ask(broker, 12, {0: 0}, max_wait_ms=60_000, min_bytes=2 * size)
        assert isinstance(parked, Parked)
        append(partition_of(broker), [NOW])
        (answered,) = partitions_in(fetched(12, await answer_of(parked)))
        assert len(answered.records) == 2 * size

    await run(tmp_path, story)


class FewDescriptors(FileSystem):
    """Opens nothing when `are_left` says that there are no more."""

    are_left: Callable[[], bool] = staticmethod(lambda: True)

    def open(self, path: str, *, create: bool = False) -> int:
        if not self.are_left():
            raise OSError(errno.EMFILE, "Too many open files", path)
        return super().open(path, create=create)


async def test_what_there_are_no_descriptors_for_is_left_for_the_next_fetch(tmp_path: Path) -> None:
    files = FewDescriptors()
    async with running_parts(tmp_path, files=files) as broker:
        await make_topic(broker, "t", partitions=3)
        for index in range(3):
            append(partition_of(broker, index), [NOW])
        pool = broker.logs.pool
        pool.close_idle()
        most = 0
        files.are_left = lambda: pool.open_count < most
        for left, expected in ((2, [(0, True), (0, True), (0, False)]), (0, [(56, False)] * 3)):
            most = left
            answered = partitions_in(fetched(12, ask(broker, 12, {0: 0, 1: 0, 2: 0})))
            assert [(int(one.error_code), bool(one.records)) for one in answered] == expected
            pool.close_idle()
            assert pool.open_count == 0
        files.are_left = lambda: True


async def test_a_partition_that_cannot_be_read_takes_no_other_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken: list[Log] = []
    read = LogReader.read

    def read_unless_broken(self: LogReader, *wanted: Any, **options: Any) -> ReadResult:
        if self._log in broken:
            raise OSError(errno.EIO, "Input/output error")
        return read(self, *wanted, **options)

    monkeypatch.setattr(LogReader, "read", read_unless_broken)

    async def story(broker: BrokerContext) -> None:
        await make_topic(broker, "t", partitions=2)
        append(partition_of(broker, 0), [NOW])
        parked = ask(broker, 12, {0: 0, 1: 0}, max_wait_ms=60_000, min_bytes=100_000)
        assert isinstance(parked, Parked)
        broken.append(partition_of(broker, 0).log)
        append(partition_of(broker, 1), [NOW])
        answered = partitions_in(fetched(12, await answer_of(parked)))
        assert [(int(one.error_code), bool(one.records)) for one in answered] == [(56, False), (0, True)]

    await run(tmp_path, story)


async def test_an_abandoned_fetch_watches_nothing(tmp_path: Path) -> None:
    async def story(broker: BrokerContext) -> None:
        await make_topic(broker, "t")
        parked = ask(broker, 12, {0: 0}, max_wait_ms=60_000)
        assert isinstance(parked, Parked)
        parked.abandon()
        assert not partition_of(broker)._watchers
        append(partition_of(broker), [NOW])
        await asyncio.sleep(0)
        assert not parked.resolved

    await run(tmp_path, story)


@pytest.mark.parametrize(
    ("offsets", "fields", "error"),
    [
        ({0: 9}, {}, ErrorCode.offset_out_of_range),
        ({0: -5}, {}, ErrorCode.offset_out_of_range),
        ({4: 0}, {}, ErrorCode.unknown_topic_or_partition),
        ({0: 0}, {"current_leader_epoch": 99}, ErrorCode.unknown_leader_epoch),
    ],
)
async def test_errors_are_answered_at_once(
    tmp_path: Path, offsets: dict[int, int], fields: Any, error: ErrorCode
) -> None:
    async def story(broker: BrokerContext) -> None:
        await make_topic(broker, "t")
        append(partition_of(broker), [NOW])
        (answered,) = partitions_in(fetched(12, ask(broker, 12, offsets, max_wait_ms=60_000, **fields)))
        assert (answered.error_code, answered.high_watermark) == (error, -1)

    await run(tmp_path, story)


async def test_a_consumer_from_another_time_is_told_where_its_log_ends(tmp_path: Path) -> None:
    async def story(broker: BrokerContext) -> None:
        await make_topic(broker, "t")
        append(partition_of(broker), [NOW])
        (answered,) = partitions_in(fetched(12, ask(broker, 12, {0: 1}, last_fetched_epoch=0)))
        assert answered.diverging_epoch.end_offset == -1
        partition = partition_of(broker)
        partition.log.assign_epoch(5, 1)
        (answered,) = partitions_in(fetched(12, ask(broker, 12, {0: 1}, last_fetched_epoch=3)))
        assert (answered.diverging_epoch.epoch, answered.diverging_epoch.end_offset) == (0, 1)

    await run(tmp_path, story)


async def test_limits_and_the_first_batch_that_is_sent_whatever_its_size(tmp_path: Path) -> None:
    async def story(broker: BrokerContext) -> None:
        await make_topic(broker, "t", partitions=3)
        for index in range(3):
            append(partition_of(broker, index), [NOW] * 10)
            append(partition_of(broker, index), [NOW])
        whole = partition_of(broker).log.size
        first = whole - 74
        answered = partitions_in(fetched(12, ask(broker, 12, {0: 0, 1: 0, 2: 0}, max_bytes=1)))
        assert len(answered[0].records) >= first // 2
        assert [len(one.records) for one in answered[1:]] == [0, 0]
        answered = partitions_in(fetched(12, ask(broker, 12, {0: 0, 1: 0, 2: 0}, max_bytes=whole + 10)))
        assert [len(one.records) for one in answered] == [whole, 10, 0]
        answered = partitions_in(fetched(12, ask(broker, 12, {0: 0}, partition_max_bytes=whole - 3)))
        assert len(answered[0].records) == whole - 3

    await run(tmp_path, story)


async def test_a_session_tells_only_what_changed(tmp_path: Path) -> None:
    async def story(broker: BrokerContext) -> None:
        await make_topic(broker, "t", partitions=3)
        full = fetched(13, ask(broker, 13, {0: 0, 1: 0, 2: 0}, session_epoch=0))
        assert len(partitions_in(full)) == 3
        assert full.session_id > 0
        append(partition_of(broker, 2), [NOW])
        session = {"session_id": full.session_id}
        second = fetched(13, ask(broker, 13, {}, session_epoch=1, **session))
        assert [one.partition_index for one in partitions_in(second)] == [2]
        third = ask(broker, 13, {2: 1}, session_epoch=2, **session)
        assert partitions_in(fetched(13, third)) == []
        lost = fetched(13, ask(broker, 13, {}, session_epoch=9, **session))
        assert lost.error_code is ErrorCode.invalid_fetch_session_epoch

    await run(tmp_path, story)


async def test_what_is_not_in_memory_is_read_in_a_thread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    in_thread: list[bool] = []
    read = LogReader.read

    def cold_read(self: LogReader, *wanted: Any, may_block: bool = True, **options: Any) -> ReadResult:
        in_thread.append(threading.current_thread() is not threading.main_thread())
        if not may_block and True not in in_thread:
            raise ColdRead("not in memory")
        return read(self, *wanted, may_block=may_block, **options)

    async def story(broker: BrokerContext) -> None:
        await make_topic(broker, "t")
        append(partition_of(broker), [NOW])
        parked = ask(broker, 12, {0: 0}, max_wait_ms=60_000)
        assert isinstance(parked, Parked)
        (answered,) = partitions_in(fetched(12, await answer_of(parked)))
        assert (answered.error_code, len(answered.records)) == (ErrorCode.none, partition_of(broker).log.size)
        assert in_thread == [False, True, False]

    monkeypatch.setattr(LogReader, "read", cold_read)
    await run(tmp_path, story)


async def test_a_disk_that_cannot_be_read_is_told_for_its_partition_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    waited: list[int] = []
    read = LogReader.read

    def cold_read(self: LogReader, *wanted: Any, may_block: bool = True, **options: Any) -> ReadResult:
        if self._log.tp.partition == 1:
            return read(self, *wanted, may_block=may_block, **options)
        if not may_block:
            raise ColdRead("not in memory")
        waited.append(self._log.tp.partition)
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    async def story(broker: BrokerContext) -> None:
        await make_topic(broker, "t", partitions=2)
        for index in range(2):
            append(partition_of(broker, index), [NOW])
        parked = ask(broker, 12, {0: 0, 1: 0}, max_wait_ms=60_000)
        assert isinstance(parked, Parked)
        bad, good = partitions_in(fetched(12, await answer_of(parked)))
        assert (bad.error_code, bad.records) == (ErrorCode.kafka_storage_error, b"")
        assert (good.error_code, len(good.records)) == (ErrorCode.none, partition_of(broker, 1).log.size)
        assert waited == [0]

    monkeypatch.setattr(LogReader, "read", cold_read)
    await run(tmp_path, story)


async def test_a_topic_made_again_has_another_id(tmp_path: Path) -> None:
    async def story(broker: BrokerContext) -> None:
        old = await make_topic(broker, "t")
        await broker.controller.delete_topics(["t"])
        await make_topic(broker, "t")
        frame = fetch_request(13, {("t", old.topic_id): {0: 0}})
        (answered,) = partitions_in(fetched(13, fetch(broker, CALLER, 13, 5, frame, 0)))
        assert answered.error_code is ErrorCode.unknown_topic_id

    await run(tmp_path, story)
