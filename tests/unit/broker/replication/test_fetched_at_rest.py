"""What a follower tells its leader of partitions at rest: nothing, until that would leave the leader in error."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, NamedTuple

from kio.schema.fetch.v17 import request as fetch_request
from kio.serial import entity_reader

from barnabas.broker.replication.fetcher import ReplicaFetcher
from barnabas.broker.replication.fetcher_manager import FetcherContext
from barnabas.broker.replication.follower_partition import FollowerPartition
from barnabas.broker.replication.throttle import ReplicationThrottle
from barnabas.model.clock import ManualClock
from barnabas.model.config.broker import BrokerConfig
from barnabas.model.ids import TopicPartition
from barnabas.model.log_config import LogConfig
from barnabas.net.channel import ChannelBroken
from tests.support.logs import new_log
from tests.unit.broker.replication.test_fetcher import Disk
from tests.unit.broker.replication.test_work_at_rest import TOPIC_ID, QuietLeader

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence
    from pathlib import Path

PARTITIONS = range(3)


class Named(NamedTuple):
    """What a request says: offsets and log starts by partition, and what is forgotten."""

    positions: dict[int, tuple[int, int]]
    forgotten: set[int]


class Listening(QuietLeader):
    """A quiet leader that keeps what it was asked."""

    def __init__(self) -> None:
        super().__init__()
        self.named: list[Named] = []

    async def ask(
        self, key: int, version: int, body: Sequence[bytes | bytearray | memoryview], *, flexible: bool, seconds: float
    ) -> memoryview:
        """Answer a Fetch."""
        request: Any = entity_reader(fetch_request.FetchRequest)(bytes(body[0]), 0)[0]
        parts = [part for topic in request.topics for part in topic.partitions]
        positions = {int(part.partition): (int(part.fetch_offset), int(part.log_start_offset)) for part in parts}
        gone = {int(index) for topic in request.forgotten_topics_data for index in topic.partitions}
        self.named.append(Named(positions, gone))
        return await super().ask(key, version, body, flexible=flexible, seconds=seconds)


class Scene:
    """A fetcher of three partitions, all of them at rest."""

    def __init__(self, tmp_path: Path, executor: ThreadPoolExecutor) -> None:
        self._folder = tmp_path
        settings = BrokerConfig.load({"log.dirs": str(tmp_path), "replica.fetch.backoff.ms": "10"})
        self.leader = Listening()
        self.disk = Disk(may_truncate_fully=False)
        context = FetcherContext(
            broker_id=1,
            broker_epoch=lambda: 0,
            settings=settings,
            clock=ManualClock(),
            executor=executor,
            throttle=ReplicationThrottle(1, settings, leads=False),
            logs=self.disk,
        )
        self.fetcher = ReplicaFetcher(2, self.leader, context)
        self.followers = [self.follow(index, 0) for index in PARTITIONS]

    def follow(self, index: int, leader_epoch: int) -> FollowerPartition:
        """Follow a partition, with a log of its own."""
        log = new_log(self._folder / f"{index}-{leader_epoch}", LogConfig())
        log.prepare()
        follower = FollowerPartition(TopicPartition("t", index), TOPIC_ID, log, leader_id=2, leader_epoch=leader_epoch)
        follower.agrees = True
        self.fetcher.add(follower)
        return follower

    async def answer(self, indexes: Sequence[int] = (), error: Exception | None = None) -> Named:
        """Answer the request that waits, with a record for some partitions; what the next one names."""
        asked = await self.leader.asked.get()
        if error is not None:
            asked.set_exception(error)
        else:
            asked.set_result(indexes)
        while self.leader.asked.empty():
            await asyncio.sleep(0)
        return self.leader.named[-1]


async def run(tmp_path: Path, story: Callable[[Scene], Awaitable[None]]) -> None:
    """Tell a story of partitions at rest."""
    with ThreadPoolExecutor(1) as executor:
        scene = Scene(tmp_path, executor)
        try:
            async with asyncio.timeout(30):
                assert await scene.answer() == Named({}, set())
                assert scene.leader.named[0] == Named(dict.fromkeys(PARTITIONS, (0, 0)), set())
                await story(scene)
        finally:
            await scene.fetcher.stop()


async def test_a_record_moves_one_partition_and_it_alone_is_named(tmp_path: Path) -> None:
    async def story(scene: Scene) -> None:
        assert await scene.answer([1]) == Named({1: (1, 0)}, set())
        assert await scene.answer() == Named({}, set())

    await run(tmp_path, story)


async def test_a_partition_that_is_followed_no_more_is_forgotten_once(tmp_path: Path) -> None:
    async def story(scene: Scene) -> None:
        scene.fetcher.remove(scene.followers[1])
        assert await scene.answer([1]) == Named({}, {1})
        assert scene.followers[1].log.log_end_offset == 0
        assert await scene.answer() == Named({}, set())

    await run(tmp_path, story)


async def test_an_answer_for_a_partition_that_is_followed_anew_since_is_dropped(tmp_path: Path) -> None:
    async def story(scene: Scene) -> None:
        scene.fetcher.remove(scene.followers[1])
        anew = scene.follow(1, 1)
        named = await scene.answer([1, 2])
        assert [each.log.log_end_offset for each in (*scene.followers, anew)] == [0, 0, 1, 0]
        assert named == Named({1: (0, 0), 2: (1, 0)}, set())
        assert (await scene.answer([1])).positions == {1: (1, 0)}

    await run(tmp_path, story)


async def test_a_log_start_that_retention_has_moved_is_told(tmp_path: Path) -> None:
    async def story(scene: Scene) -> None:
        log = scene.followers[0].log
        assert (await scene.answer([0])).positions == {0: (1, 0)}
        assert await scene.answer() == Named({}, set())
        log.high_watermark = 1
        log.delete_records_before(1)
        scene.disk.log_start_moves += 1
        assert await scene.answer() == Named({0: (1, 1)}, set())
        assert await scene.answer() == Named({}, set())

    await run(tmp_path, story)


async def test_a_new_session_names_everything(tmp_path: Path) -> None:
    async def story(scene: Scene) -> None:
        await scene.answer([2])
        named = await scene.answer(error=ChannelBroken("a test"))
        assert named == Named({0: (0, 0), 1: (0, 0), 2: (1, 0)}, set())
        assert await scene.answer() == Named({}, set())

    await run(tmp_path, story)


async def test_what_waits_after_an_error_is_forgotten_and_then_fetched_again(tmp_path: Path) -> None:
    async def story(scene: Scene) -> None:
        scene.followers[0].not_before = asyncio.get_running_loop().time() + 60
        scene.fetcher._awake[scene.followers[0].place] = scene.followers[0]
        assert await scene.answer() == Named({}, {0})
        scene.followers[0].not_before = 0.0
        while (named := await scene.answer()) == Named({}, set()):
            await asyncio.sleep(0.001)
        assert named == Named({0: (0, 0)}, set())

    await run(tmp_path, story)
