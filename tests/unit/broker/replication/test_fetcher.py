"""When a follower tells its leader what it has, where flush.messages is set; and where it goes on otherwise."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from io import BytesIO
from typing import TYPE_CHECKING, Any
from uuid import UUID

import pytest
from kio.schema.fetch.v17 import request as fetch_request
from kio.schema.fetch.v17 import response as fetch_response
from kio.schema.list_offsets.v7 import request as offsets_request
from kio.schema.list_offsets.v7 import response as offsets_response
from kio.schema.offset_for_leader_epoch.v4 import response as epochs_response
from kio.serial import entity_reader, entity_writer
from kio.static.primitive import i32, i64

from barnabas.broker.replication.fetcher import ReplicaFetcher
from barnabas.broker.replication.fetcher_manager import FetcherContext
from barnabas.broker.replication.follower_partition import FollowerPartition
from barnabas.broker.replication.throttle import ReplicationThrottle
from barnabas.model.clock import ManualClock
from barnabas.model.config.broker import BrokerConfig
from barnabas.model.errors import ErrorCode, StorageFailed
from barnabas.model.log_config import LogConfig
from barnabas.net.channel import Channel
from barnabas.protocol.apis import ApiKey
from barnabas.protocol.wire.conversion import zero
from barnabas.storage.files import FileSystem
from tests.support.logs import TP, append, batch, new_log

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence
    from pathlib import Path

    from barnabas.storage.log.log import Log

TOPIC_ID = UUID(int=1)


class Leader(Channel):
    """A leader whose log has one record: it says nothing to who has it."""

    def __init__(self) -> None:
        self.asked: asyncio.Queue[int] = asyncio.Queue()
        """The offsets that were fetched from."""

    async def ask(
        self, key: int, version: int, body: Sequence[bytes | bytearray | memoryview], *, flexible: bool, seconds: float
    ) -> memoryview:
        """Answer a Fetch."""
        request = entity_reader(fetch_request.FetchRequest)(bytes(body[0]), 0)[0]
        offset = request.topics[0].partitions[0].fetch_offset
        self.asked.put_nowait(offset)
        if offset:
            await asyncio.Event().wait()
        answer = BytesIO()
        entity_writer(fetch_response.FetchResponse)(answer, self._first_record())
        return memoryview(b"\0" + answer.getvalue())

    def _first_record(self) -> Any:
        records: Any = zero(fetch_response.PartitionData, records=batch(1))
        topic: Any = zero(fetch_response.FetchableTopicResponse, topic_id=TOPIC_ID, partitions=(records,))
        return zero(fetch_response.FetchResponse, responses=(topic,))

    def close(self) -> None:
        """There is nothing to close."""


class Disk:
    """Syncs that end when the test says so; a log may be emptied only where the test expects it."""

    log_start_moves = 0

    def __init__(self, *, may_truncate_fully: bool) -> None:
        self._may_truncate_fully = may_truncate_fully
        self.emptied: list[tuple[FollowerPartition, int]] = []
        self.syncs: asyncio.Queue[tuple[int, Future[int]]] = asyncio.Queue()
        """Up to which offset each goes."""
        self.unfollow: Callable[[], None] = lambda: None
        """Has the partition fetched no more."""

    def flush_through(self, log: Log, end_offset: int) -> Future[int]:
        """Begin a sync."""
        done: Future[int] = Future()
        self.syncs.put_nowait((end_offset, done))
        return done

    def truncate(self, follower: FollowerPartition, offset: int) -> None:
        """No test truncates a log."""
        raise AssertionError(f"{follower} is to be truncated to {offset}")

    def truncate_fully(self, follower: FollowerPartition, start_offset: int) -> None:
        """Note which log was to be emptied."""
        assert self._may_truncate_fully, f"{follower} is to start anew at {start_offset}"
        self.emptied.append((follower, start_offset))

    def start_within(self, follower: FollowerPartition, batches: memoryview, now_ms: int) -> None:
        """Change the log at once; the partition is not followed anew."""
        self.unfollow()
        follower.log.start_within(batches, now_ms=now_ms)


async def run(
    tmp_path: Path,
    config: LogConfig,
    story: Callable[[Leader, Disk, Log], Awaitable[None]],
    chosen: Leader | None = None,
    *,
    may_truncate_fully: bool = False,
    backoff_ms: int = 10,
    begin: Callable[[Log], object] = lambda _: None,
    first: int = 0,
) -> None:
    """Follow a partition, of a leader with one record unless it is another; it is empty unless `begin` changes it."""

    async def main() -> None:
        settings = BrokerConfig.load({"log.dirs": str(tmp_path), "replica.fetch.backoff.ms": str(backoff_ms)})
        leader, disk, log = chosen or Leader(), Disk(may_truncate_fully=may_truncate_fully), new_log(tmp_path, config)
        with ThreadPoolExecutor(1) as executor:
            context = FetcherContext(
                broker_id=1,
                broker_epoch=lambda: 0,
                settings=settings,
                clock=ManualClock(),
                executor=executor,
                throttle=ReplicationThrottle(1, settings, leads=False),
                logs=disk,
            )
            begin(log)
            fetcher = ReplicaFetcher(2, leader, context)
            follower = FollowerPartition(TP, TOPIC_ID, log, leader_id=2, leader_epoch=0)
            disk.unfollow = partial(fetcher.remove, follower)
            fetcher.add(follower)
            try:
                async with asyncio.timeout(30):
                    assert await leader.asked.get() == first
                    await story(leader, disk, log)
            finally:
                await fetcher.stop()

    await main()


async def turns() -> None:
    """Let everyone do what can be done at once."""
    for _ in range(20):
        await asyncio.sleep(0)


async def test_what_flush_messages_wants_synced_is_told_to_the_leader_when_it_is(tmp_path: Path) -> None:
    async def story(leader: Leader, disk: Disk, log: Log) -> None:
        offset, sync = await disk.syncs.get()
        await turns()
        assert (offset, log.log_end_offset, leader.asked.empty()) == (1, 1, True)
        sync.set_result(log.flush())
        assert await leader.asked.get() == 1
        assert disk.syncs.empty()

    await run(tmp_path, LogConfig(flush_messages=1), story)


async def test_what_cannot_be_synced_is_not_told(tmp_path: Path) -> None:
    async def story(leader: Leader, disk: Disk, log: Log) -> None:
        for _ in range(2):
            _, sync = await disk.syncs.get()
            sync.set_exception(StorageFailed("a test"))
        offset, sync = await disk.syncs.get()
        assert (offset, leader.asked.empty()) == (1, True)
        sync.set_result(log.flush())
        assert await leader.asked.get() == 1

    await run(tmp_path, LogConfig(flush_messages=1), story)


async def test_a_follower_that_stops_leaves_a_sync_to_who_does_it(tmp_path: Path) -> None:
    """Others may wait for the same one."""
    begun: list[Future[int]] = []

    async def story(leader: Leader, disk: Disk, log: Log) -> None:
        begun.append((await disk.syncs.get())[1])

    await run(tmp_path, LogConfig(flush_messages=1), story)
    assert [sync.cancelled() for sync in begun] == [False]


async def test_before_that_many_messages_nothing_is_synced(tmp_path: Path) -> None:
    async def story(leader: Leader, disk: Disk, log: Log) -> None:
        assert await leader.asked.get() == 1
        assert disk.syncs.empty()

    await run(tmp_path, LogConfig(flush_messages=2), story)


async def test_the_first_file_is_not_made_on_the_event_loop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    open_file, by = FileSystem.open, list[str]()

    def open_and_note(files: FileSystem, path: str, *, create: bool = False) -> int:
        if create and path.endswith(".log"):
            by.append(threading.current_thread().name)
        return open_file(files, path, create=create)

    monkeypatch.setattr(FileSystem, "open", open_and_note)

    async def story(leader: Leader, _: Disk, log: Log) -> None:
        assert await leader.asked.get() == 1
        assert log.log_end_offset == 1

    await run(tmp_path, LogConfig(), story)
    assert by
    assert threading.main_thread().name not in by


class Elsewhere(Leader):
    """A leader that has nothing at any offset that it is asked for; its log begins and ends somewhere."""

    def __init__(self, start: int, end: int) -> None:
        super().__init__()
        self._ends = {-2: start, -1: end}

    async def ask(
        self, key: int, version: int, body: Sequence[bytes | bytearray | memoryview], *, flexible: bool, seconds: float
    ) -> memoryview:
        """Answer a Fetch or a ListOffsets."""
        answer = BytesIO()
        if key == ApiKey.LIST_OFFSETS:
            asked = entity_reader(offsets_request.ListOffsetsRequest)(bytes(body[0]), 0)[0].topics[0].partitions[0]
            entity_writer(offsets_response.ListOffsetsResponse)(answer, self._offset(self._ends[asked.timestamp]))
        else:
            request = entity_reader(fetch_request.FetchRequest)(bytes(body[0]), 0)[0]
            self.asked.put_nowait(request.topics[0].partitions[0].fetch_offset)
            entity_writer(fetch_response.FetchResponse)(answer, self._out_of_range())
        return memoryview(b"\0" + answer.getvalue())

    @staticmethod
    def _offset(offset: int) -> Any:
        part: Any = zero(offsets_response.ListOffsetsPartitionResponse, offset=offset)
        topic: Any = zero(offsets_response.ListOffsetsTopicResponse, partitions=(part,))
        return zero(offsets_response.ListOffsetsResponse, topics=(topic,))

    @staticmethod
    def _out_of_range() -> Any:
        part: Any = zero(fetch_response.PartitionData, error_code=ErrorCode.offset_out_of_range)
        topic: Any = zero(fetch_response.FetchableTopicResponse, topic_id=TOPIC_ID, partitions=(part,))
        return zero(fetch_response.FetchResponse, responses=(topic,))


async def test_a_log_that_ends_before_the_leaders_begins_starts_where_that_does(tmp_path: Path) -> None:
    async def story(leader: Leader, disk: Disk, log: Log) -> None:
        while not disk.emptied:
            await asyncio.sleep(0.001)
        assert [(follower.log, offset) for follower, offset in disk.emptied[:1]] == [(log, 3)]

    await run(tmp_path, LogConfig(), story, Elsewhere(3, 5), may_truncate_fully=True)


async def test_a_follower_that_the_leader_has_nothing_for_asks_ever_more_rarely(tmp_path: Path) -> None:
    async def story(leader: Leader, disk: Disk, log: Log) -> None:
        began = asyncio.get_running_loop().time()
        for _ in range(4):
            assert await leader.asked.get() == 0
        assert asyncio.get_running_loop().time() - began >= 0.02 + 0.04 + 0.08

    await run(tmp_path, LogConfig(), story, Elsewhere(0, 5), backoff_ms=1000)


class DividedBatch(Elsewhere):
    """A leader whose log starts at offset 5, after DeleteRecords: in the middle of a batch, from 3 to 6."""

    async def ask(
        self, key: int, version: int, body: Sequence[bytes | bytearray | memoryview], *, flexible: bool, seconds: float
    ) -> memoryview:
        """Answer a Fetch of offset 5 with that batch and the next one; earlier epochs end before offset 5."""
        if key == ApiKey.LIST_OFFSETS:
            return await super().ask(key, version, body, flexible=flexible, seconds=seconds)
        answer = BytesIO()
        if key == ApiKey.OFFSET_FOR_LEADER_EPOCH:
            entity_writer(epochs_response.OffsetForLeaderEpochResponse)(answer, self._end_of_epoch())
        else:
            request = entity_reader(fetch_request.FetchRequest)(bytes(body[0]), 0)[0]
            self.asked.put_nowait(request.topics[0].partitions[0].fetch_offset)
            entity_writer(fetch_response.FetchResponse)(answer, self._first_record())
        return memoryview(b"\0" + answer.getvalue())

    @staticmethod
    def _end_of_epoch() -> Any:
        part: Any = zero(epochs_response.EpochEndOffset, leader_epoch=i32(0), end_offset=i64(5))
        topic: Any = zero(epochs_response.OffsetForLeaderTopicResult, topic=TP.topic, partitions=(part,))
        return zero(epochs_response.OffsetForLeaderEpochResponse, topics=(topic,))

    def _first_record(self) -> Any:
        batches = [offset.to_bytes(8, "big") + batch(4)[8:] for offset in (3, 7)]
        records: Any = zero(
            fetch_response.PartitionData,
            records=b"".join(batches),
            high_watermark=i64(11),
            log_start_offset=i64(5),
        )
        topic: Any = zero(fetch_response.FetchableTopicResponse, topic_id=TOPIC_ID, partitions=(records,))
        return zero(fetch_response.FetchResponse, responses=(topic,))


@pytest.mark.parametrize("has_others", [False, True])
async def test_a_log_begins_within_a_batch_as_the_leaders_does(tmp_path: Path, has_others: bool) -> None:
    """Otherwise the batch is refused for ever, and the replica never in sync again.

    The same if it has other records up to there, which the leader never had and could not tell from what it deleted.
    """

    async def story(leader: Leader, disk: Disk, log: Log) -> None:
        while log.log_end_offset < 11:
            await asyncio.sleep(0.001)
        assert (log.log_start_offset, log.high_watermark) == (5, 5)

    def begin(log: Log) -> None:
        log.truncate_fully(4 if has_others else 5)
        if has_others:
            append(log, batch(1))

    await run(tmp_path, LogConfig(), story, DividedBatch(5, 11), begin=begin, first=5)


class FarAhead(Leader):
    """A leader whose log has many small batches, the last of which does not fit into its answer."""

    batches = 700
    damaged: int | None = None

    def _first_record(self) -> Any:
        batches = [offset.to_bytes(8, "big") + batch(1)[8:] for offset in range(self.batches + 1)]
        if self.damaged is not None:
            batches[self.damaged] = batches[self.damaged][:-1] + b"?"
        records: Any = zero(fetch_response.PartitionData, records=b"".join(batches)[:-10])
        topic: Any = zero(fetch_response.FetchableTopicResponse, topic_id=TOPIC_ID, partitions=(records,))
        return zero(fetch_response.FetchResponse, responses=(topic,))


class Damaged(FarAhead):
    """One of them is not what its CRC says."""

    damaged = 150


async def test_many_small_batches_are_appended_in_several_turns_of_the_event_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("barnabas.broker.replication.fetcher.APPENDED_TOGETHER", 100)
    seen: list[int] = []

    async def story(leader: Leader, disk: Disk, log: Log) -> None:
        while log.log_end_offset < FarAhead.batches:
            seen.append(log.log_end_offset)
            await asyncio.sleep(0)
        assert await leader.asked.get() == FarAhead.batches

    await run(tmp_path, LogConfig(), story, FarAhead())
    assert sorted({*seen}) == [0, 100, 200, 300, 400, 500, 600]


async def test_what_comes_after_a_piece_that_cannot_be_appended_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A log may have gaps, as compaction leaves them: nobody else would notice this one."""
    monkeypatch.setattr("barnabas.broker.replication.fetcher.APPENDED_TOGETHER", 100)

    async def story(leader: Leader, disk: Disk, log: Log) -> None:
        assert await leader.asked.get() == 100
        assert log.log_end_offset == 100

    await run(tmp_path, LogConfig(), story, Damaged())


async def test_a_partition_that_is_led_by_another_between_two_pieces_gets_no_more_of_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The log may be cut by then, or be appended to by this broker itself."""
    monkeypatch.setattr("barnabas.broker.replication.fetcher.APPENDED_TOGETHER", 100)

    async def story(leader: Leader, disk: Disk, log: Log) -> None:
        while log.log_end_offset < 300:
            await asyncio.sleep(0)
        disk.unfollow()
        log.truncate_to(250)
        await turns()
        assert log.log_end_offset == 250

    await run(tmp_path, LogConfig(), story, FarAhead())


class InSession(Leader):
    """Opens a session when it is told to, and has the partition followed anew while it answers then."""

    def __init__(self) -> None:
        super().__init__()
        self.opens = False
        self.follow_anew: Callable[[], None] = lambda: None
        self.named: asyncio.Queue[int] = asyncio.Queue()
        """How many topics each request of the session names."""

    async def ask(
        self, key: int, version: int, body: Sequence[bytes | bytearray | memoryview], *, flexible: bool, seconds: float
    ) -> memoryview:
        request = entity_reader(fetch_request.FetchRequest)(bytes(body[0]), 0)[0]
        self.asked.put_nowait(0)
        if request.session_id:
            self.named.put_nowait(len(request.topics))
            await asyncio.Event().wait()
        await asyncio.sleep(0)
        if self.opens:
            self.follow_anew()
        partition: Any = zero(fetch_response.PartitionData, high_watermark=i64(0))
        topic: Any = zero(fetch_response.FetchableTopicResponse, topic_id=TOPIC_ID, partitions=(partition,))
        response = zero(fetch_response.FetchResponse, session_id=i32(7 if self.opens else 0), responses=(topic,))
        answer = BytesIO()
        entity_writer(fetch_response.FetchResponse)(answer, response)
        return memoryview(b"\0" + answer.getvalue())


@pytest.mark.parametrize("anew", [True, False])
async def test_what_an_answer_said_of_a_partition_that_is_followed_anew_is_asked_for_again(
    tmp_path: Path, anew: bool
) -> None:
    """The leader took it as told: the follower did not hear of a high watermark before the next record."""
    leader = InSession()

    async def story(_: Leader, disk: Disk, log: Log) -> None:
        remove: Any = disk.unfollow
        fetcher, follower = remove.func.__self__, remove.args[0]

        def follow_anew() -> None:
            fetcher.remove(follower)
            fetcher.add(FollowerPartition(TP, TOPIC_ID, log, leader_id=2, leader_epoch=0))

        if anew:
            leader.follow_anew = follow_anew
        leader.opens = True
        assert await leader.named.get() == (1 if anew else 0)

    await run(tmp_path, LogConfig(), story, leader)
