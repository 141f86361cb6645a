"""What partitions at rest cost, counted in bytecodes: a fetch of many costs no more than one of few, on either side."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from bench.counted_broker import BytecodeCounter

import barnabas
from barnabas.broker.handlers.fetch import fetch
from barnabas.broker.replication.fetcher import ReplicaFetcher
from barnabas.broker.replication.fetcher_manager import FetcherContext
from barnabas.broker.replication.follower_partition import FollowerPartition
from barnabas.broker.replication.throttle import ReplicationThrottle
from barnabas.model.clock import ManualClock
from barnabas.model.config.broker import BrokerConfig
from barnabas.model.ids import TopicPartition
from barnabas.model.log_config import LogConfig
from barnabas.net.channel import Channel
from barnabas.protocol.messages import replica_fetch
from barnabas.protocol.messages.replica_fetch import FetchPosition
from barnabas.protocol.wire.varint import uvarint
from tests.support.fetching import NOW
from tests.support.images import proved
from tests.support.logs import batch, new_log
from tests.support.parts import append, make_topic, run
from tests.support.produce_fetch import frame_of
from tests.unit.broker.replication.test_fetcher import Disk

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from barnabas.broker.context import BrokerContext

PACKAGE: Final = str(Path(barnabas.__file__).parent)
FEW: Final = 5
MANY: Final = 100
SLACK: Final = 60
"""Bytecodes by which two counts of the same work differ: a varint is longer."""
TOPIC_ID: Final = UUID(int=7)


async def counted(begin: Callable[[], Any], is_done: Callable[[Any], bool]) -> int:
    """Bytecodes of the package, from a beginning until what came of it is done."""
    counter = BytecodeCounter()
    counter.begin()
    try:
        begun = begin()
        while not is_done(begun):
            await asyncio.sleep(0)
    finally:
        counter.end()
    return sum(cost for name, cost in counter.by_function().items() if name.startswith(PACKAGE))


async def leader_costs(tmp_path: Path, partitions: int) -> tuple[int, int]:
    """Of a follower's fetch that waits in vain, and of one that is told of one record."""
    costs: list[int] = []

    async def story(broker: BrokerContext) -> None:
        topic = await make_topic(broker, "t", partitions)
        broker.replicas.take_all(
            [replace(topic, partitions=tuple(replace(each, replicas=(1, 7), isr=(1, 7)) for each in topic.partitions))]
        )
        place, session = (topic.topic_id.bytes, 0), [0, 0]

        def ask(positions: dict[tuple[bytes, int], FetchPosition], wait_ms: int) -> Any:
            body = replica_fetch.pack_request(
                max_wait_ms=wait_ms,
                min_bytes=1,
                max_bytes=1 << 25,
                partition_max_bytes=1 << 20,
                session=(session[0], session[1]),
                positions=positions,
                forgotten=(),
                replica=(7, 5),
            )
            session[1] += 1
            return fetch(broker, proved(7), replica_fetch.VERSION, 5, memoryview(body), 0)

        first = {(place[0], index): FetchPosition(0, 0, -1, 0) for index in range(partitions)}
        opened = replica_fetch.read_response(memoryview(frame_of(ask(first, 0)))[8:])
        session[0] = opened.session_id
        ask({}, 0)

        costs.append(await counted(lambda: ask({}, 1), lambda waiting: waiting.resolved))
        waiting = ask({}, 60_000)
        costs.append(await counted(lambda: append(broker.replicas.find("t", 0), [NOW]), lambda _: waiting.resolved))

    await run(tmp_path, story)
    return costs[0], costs[1]


async def least(
    measure: Callable[[Path, int], Awaitable[tuple[int, int]]], folder: Path, partitions: int
) -> tuple[int, int]:
    """The smaller counts of three: what else a broker does now and then falls into some of them."""
    first, second = zip(*[await measure(folder / str(turn), partitions) for turn in range(3)], strict=True)
    return min(first), min(second)


async def test_what_rests_costs_the_leader_nothing(tmp_path: Path) -> None:
    few = await least(leader_costs, tmp_path / "few", FEW)
    many = await least(leader_costs, tmp_path / "many", MANY)
    assert [after - before <= SLACK for before, after in zip(few, many, strict=True)] == [True, True], (few, many)


class QuietLeader(Channel):
    """A leader that says nothing about empty partitions, except when it is given a record."""

    def __init__(self) -> None:
        self.asked: asyncio.Queue[asyncio.Future[Sequence[int]]] = asyncio.Queue()
        """Fetches that wait to be told in which partitions there is a record."""

    async def ask(
        self, key: int, version: int, body: Sequence[bytes | bytearray | memoryview], *, flexible: bool, seconds: float
    ) -> memoryview:
        """Answer a Fetch."""
        told: asyncio.Future[Sequence[int]] = asyncio.get_running_loop().create_future()
        self.asked.put_nowait(told)
        return memoryview(self._answer(await told))

    @staticmethod
    def _answer(indexes: Sequence[int]) -> bytes:
        head = b"\0" + bytes(6) + (9).to_bytes(4, "big")
        if not indexes:
            return head + uvarint(1) + b"\0"
        found = head + uvarint(2) + TOPIC_ID.bytes + uvarint(len(indexes) + 1)
        records = batch(1)
        for index in indexes:
            offsets = (0, -1, 0)
            found += index.to_bytes(4, "big") + bytes(2)
            found += b"".join(offset.to_bytes(8, "big", signed=True) for offset in offsets)
            found += uvarint(1) + (-1).to_bytes(4, "big", signed=True) + uvarint(len(records) + 1) + records + b"\0"
        return found + b"\0\0"

    def close(self) -> None:
        """There is nothing to close."""


async def follower_costs(tmp_path: Path, partitions: int) -> tuple[int, int]:
    """Of a round in which the leader says nothing, and of one with a record in one partition."""
    settings = BrokerConfig.load({"log.dirs": str(tmp_path)})
    leader = QuietLeader()
    with ThreadPoolExecutor(1) as executor:
        context = FetcherContext(
            broker_id=1,
            broker_epoch=lambda: 0,
            settings=settings,
            clock=ManualClock(),
            executor=executor,
            throttle=ReplicationThrottle(1, settings, leads=False),
            logs=Disk(may_truncate_fully=False),
        )
        fetcher = ReplicaFetcher(2, leader, context)
        for index in range(partitions):
            log = new_log(tmp_path / str(index), LogConfig())
            log.prepare()
            follower = FollowerPartition(TopicPartition("t", index), TOPIC_ID, log, leader_id=2, leader_epoch=0)
            follower.agrees = True
            fetcher.add(follower)

        async def answered(indexes: Sequence[int]) -> int:
            """Bytecodes from an answer to the next request."""
            asked = await leader.asked.get()
            return await counted(lambda: asked.set_result(indexes), lambda _: not leader.asked.empty())

        try:
            for _ in range(3):
                await answered(())
            quiet = await answered(())
            with_record = await answered((0,))
        finally:
            await fetcher.stop()
    return quiet, with_record


async def test_what_rests_costs_the_follower_nothing(tmp_path: Path) -> None:
    (tmp_path / "few").mkdir()
    (tmp_path / "many").mkdir()
    few = await follower_costs(tmp_path / "few", FEW)
    many = await follower_costs(tmp_path / "many", MANY)
    assert [after - before <= SLACK for before, after in zip(few, many, strict=True)] == [True, True], (few, many)
