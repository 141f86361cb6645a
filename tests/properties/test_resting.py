"""Followers are told the same, and leaders know the same of them, as if every fetch looked at every partition.

Two topics have the same history. Partitions of the first rest in the sessions of their followers; those of the second
never do.
"""

from __future__ import annotations

import asyncio
import tempfile
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from barnabas.broker.handlers.fetch import fetch
from barnabas.broker.replication.leader_partition import LeaderPartition
from barnabas.broker.replication.replicas import ReplicaManager
from barnabas.net.reply import Answer, Parked
from barnabas.protocol.messages import replica_fetch
from barnabas.protocol.messages.replica_fetch import FetchPosition, Place
from tests.support.fetching import NOW
from tests.support.images import proved
from tests.support.logs import split
from tests.support.parts import append, make_topic, running_parts
from tests.support.produce_fetch import frame_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from barnabas.broker.context import BrokerContext
    from barnabas.machines.controller.image import TopicImage
    from barnabas.machines.fetch_session import ReplicaSession, SessionPartition

PARTITIONS = range(3)
REPLICAS = (7, 8)
WAIT_MS = 500
NAMES = count()


class ManualLoop(asyncio.SelectorEventLoop):
    """An event loop whose clock stands still."""

    now = 1000.0

    def time(self) -> float:
        """The time that the test says."""
        return self.now


@dataclass
class Follower:
    """A broker that follows all partitions of a topic, in one session at a time."""

    replica: int
    broker_epoch: int = 5
    session: tuple[int, int] = (0, 0)
    leader_epochs: dict[int, int] = field(default_factory=lambda: dict.fromkeys(PARTITIONS, 0))
    offsets: dict[int, int] = field(default_factory=lambda: dict.fromkeys(PARTITIONS, 0))
    starts: dict[int, int] = field(default_factory=lambda: dict.fromkeys(PARTITIONS, 0))
    followed: set[int] = field(default_factory=lambda: set(PARTITIONS))
    named: dict[Place, FetchPosition] = field(default_factory=dict)
    other_session: tuple[tuple[int, int], dict[Place, FetchPosition]] = ((0, 0), {})
    """A session that it has left, and may return to."""
    waiting: list[Parked] = field(default_factory=list)
    told: list[Any] = field(default_factory=list)
    """All answers."""


class World:
    """A topic with its followers."""

    def __init__(self, broker: BrokerContext, topic: TopicImage) -> None:
        self.broker = broker
        self.topic = replace(
            topic, partitions=tuple(replace(each, replicas=(1, 7, 8), isr=(1, 7, 8)) for each in topic.partitions)
        )
        broker.replicas.take_all([self.topic])
        self.followers = {replica: Follower(replica) for replica in REPLICAS}
        self.confirmed: list[Any] = []
        self.may_grow: list[int] = []
        """Partitions whose ISR may grow, each time that a fetch shows it."""

    def led(self, index: int) -> LeaderPartition | None:
        return self.broker.replicas.get(self.topic.name, index)

    def set_image(self, index: int, **changes: Any) -> None:
        """The controller updates the broker."""
        partitions = list(self.topic.partitions)
        partitions[index] = replace(partitions[index], partition_epoch=partitions[index].partition_epoch + 1, **changes)
        self.topic = replace(self.topic, partitions=tuple(partitions))
        self.broker.replicas.take_all([self.topic])

    def fetch(self, follower: Follower, wait_ms: int) -> None:
        """Fetch what is followed; only what is not known from the last request is named."""
        topic_id = self.topic.topic_id.bytes
        positions = {
            (topic_id, index): FetchPosition(
                follower.leader_epochs[index], follower.offsets[index], -1, follower.starts[index]
            )
            for index in sorted(follower.followed)
        }
        is_full = follower.session[0] == 0
        last = {} if is_full else follower.named
        body = replica_fetch.pack_request(
            max_wait_ms=wait_ms,
            min_bytes=1,
            max_bytes=1 << 25,
            partition_max_bytes=1 << 20,
            session=follower.session,
            positions={place: at for place, at in positions.items() if last.get(place) != at},
            forgotten=[place for place in last if place not in positions],
            replica=(follower.replica, follower.broker_epoch),
        )
        follower.named = positions
        answer = fetch(self.broker, proved(follower.replica), replica_fetch.VERSION, 5, memoryview(body), 0)
        if follower.session[0]:
            follower.session = follower.session[0], follower.session[1] + 1
        if isinstance(answer, Parked):
            follower.waiting.append(answer)
        else:
            self._take(follower, answer)

    def take_answers(self) -> None:
        """Read the answers of fetches that have waited."""
        for follower in self.followers.values():
            for parked in list(follower.waiting):
                if parked.resolved:
                    follower.waiting.remove(parked)
                    answer = parked.answer
                    assert answer is not None
                    assert not isinstance(answer, Parked)
                    self._take(follower, answer)

    def _take(self, follower: Follower, answer: Answer) -> None:
        response = replica_fetch.read_response(memoryview(frame_of(answer))[8:])
        told = {
            one.partition: (one.error, one.high_watermark, one.log_start, one.diverging, bytes(one.records))
            for one in response.partitions
        }
        follower.told.append((response.error, told))
        if response.error:
            follower.session = 0, 0
            return
        if follower.session[0] == 0:
            follower.session = response.session_id, 1
        for one in response.partitions:
            follower.offsets[one.partition] += len(split(bytes(one.records)))
            if not one.error:
                follower.starts[one.partition] = max(follower.starts[one.partition], one.log_start)
                if follower.offsets[one.partition] < one.log_start:
                    follower.offsets[one.partition] = one.log_start

    def knowledge(self, now: float) -> list[Any]:
        """What followers were told, and what the leader knows of them and will propose."""
        found: list[Any] = [self.confirmed, sorted(self.may_grow)]
        found += [(each.told, len(each.waiting), each.session[1]) for each in self.followers.values()]
        for index in PARTITIONS:
            partition = self.led(index)
            if partition is None:
                found.append(None)
                continue
            leader = partition.leader
            watching: Any = partition._follower_watchers
            assert not any(each._parked.resolved for each in watching), "a fetch that was answered waits no more"
            found.append((leader.high_watermark, partition.log.high_watermark, sorted(leader.isr)))
            found.append([(leader.end_of(each), leader.may_join(each)) for each in REPLICAS])
            found.append([leader.has(each, 0) for each in REPLICAS] + [leader.broker_epochs(REPLICAS)])
            found.append(leader.low_watermark(partition.log.log_start_offset, {1, 7, 8}))
            found.append([leader.next_isr(now, lag, messages) for lag in (0.2, 0.7, 2.0) for messages in (None, 1)])
        return found

    def times(self) -> list[Any]:
        """When followers fetched, with nothing at rest any more."""
        for index in PARTITIONS:
            if (partition := self.led(index)) is not None:
                partition.wake_watchers()
        return [None if (partition := self.led(index)) is None else partition.leader._followers for index in PARTITIONS]


def happen(world: World, event: tuple[Any, ...]) -> None:
    """Let one thing happen to a topic."""
    what, *details = event
    if what in ("append", "delete", "retain", "confirm"):
        partition = world.led(details[0])
        if partition is None:
            return
        match what:
            case "append":
                append(partition, [NOW])
            case "delete":
                partition.delete_before(partition.log.high_watermark)
            case "retain":  # as a thread does, which tells nobody
                partition.log.delete_records_before(partition.log.high_watermark)
            case "confirm":
                partition.when_confirmed(lambda error: world.confirmed.append((details[0], type(error))))
        return
    if what == "isr":
        world.set_image(details[0], isr=details[1])
    elif what == "epoch":
        image = world.topic.partitions[details[0]]
        world.set_image(details[0], leader=details[1], leader_epoch=image.leader_epoch + 1, isr=image.isr)
    else:
        follower_event(world, world.followers[details[0]], what, details)


def follower_event(world: World, follower: Follower, what: str, details: list[Any]) -> None:
    """Let a follower do something."""
    match what:
        case "fetch":
            world.fetch(follower, details[1])
        case "learn":
            follower.leader_epochs = {each.index: each.leader_epoch for each in world.topic.partitions}
        case "restart":  # the connection broke: answers are lost
            follower.session = 0, 0
            follower.waiting.clear()
            follower.named = {}
        case "register":
            follower.broker_epoch += 1
        case "rewind":
            follower.offsets[details[1]] = max(follower.starts[details[1]], follower.offsets[details[1]] - 1)
        case "follow":
            follower.followed ^= {details[1]}
            follower.followed = follower.followed or {0}
        case "swap":
            left = follower.session, follower.named
            (follower.session, follower.named), follower.other_session = follower.other_session, left
            follower.waiting.clear()
        case "evict":
            world.broker.fetch_sessions._remove(follower.session[0])
        case "lose":  # a request that never came
            if follower.session[0]:
                follower.session = follower.session[0], follower.session[1] + 1


def events() -> st.SearchStrategy[list[tuple[Any, ...]]]:
    index, replica = st.sampled_from(PARTITIONS), st.sampled_from(REPLICAS)
    isr = st.sampled_from([(1, 7, 8), (1, 7), (1, 8), (1,)])
    usual = st.one_of(
        st.tuples(st.just("fetch"), replica, st.sampled_from([0, WAIT_MS])),
        st.tuples(st.just("round")),
        st.tuples(st.just("time"), st.sampled_from([0.05, 0.5, 1.5])),
        st.tuples(st.just("append"), index),
        st.tuples(st.just("calm")),
    )
    rare = st.one_of(
        st.tuples(st.sampled_from(["delete", "retain", "confirm"]), index),
        st.tuples(st.just("isr"), index, isr),
        st.tuples(st.just("epoch"), index, st.sampled_from([1, 1, 7])),
        st.tuples(st.sampled_from(["learn", "restart", "register", "evict", "swap", "lose"]), replica),
        st.tuples(st.sampled_from(["rewind", "follow"]), replica, index),
    )
    return st.lists(st.one_of(usual, usual, usual, rare), max_size=40)


def spelled(history: list[tuple[Any, ...]]) -> Iterator[tuple[Any, ...]]:
    """What happens one after the other; when it is calm, followers fetch until there is nothing more to tell."""
    for event in history:
        if event[0] == "calm":
            yield from [("learn", replica) for replica in REPLICAS]
            yield from [("round",), ("time", 0.5)] * 4
            yield ("round",)
        else:
            yield event


@pytest.fixture(scope="module")
def runner() -> Iterator[asyncio.Runner]:
    with asyncio.Runner(loop_factory=ManualLoop) as found:
        yield found


@pytest.fixture(scope="module")
def broker(runner: asyncio.Runner) -> Iterator[BrokerContext]:
    """One broker for all histories, each of which has topics of its own."""
    stack = AsyncExitStack()
    with tempfile.TemporaryDirectory() as folder:
        yield runner.run(stack.enter_async_context(running_parts(Path(folder))))
        runner.run(stack.aclose())


RESTED = set[str]()
"""Topics of which partitions were at rest."""


@pytest.fixture(autouse=True)
def _rest_in_one_topic(monkeypatch: pytest.MonkeyPatch) -> None:
    put_to_rest = LeaderPartition.put_to_rest

    def only_in_one(self: LeaderPartition, session: ReplicaSession, wanted: SessionPartition) -> None:
        if self.tp.topic.startswith("rests"):
            put_to_rest(self, session, wanted)
            if self._resting:
                RESTED.add(self.tp.topic)

    monkeypatch.setattr(LeaderPartition, "put_to_rest", only_in_one)


async def settle(worlds: list[World]) -> None:
    """Let everything come to an end that is due now."""
    for _ in range(12):
        await asyncio.sleep(0)
    for world in worlds:
        world.take_answers()


async def tell(worlds: list[World], event: tuple[Any, ...]) -> None:
    """Let one thing happen in all worlds, and all that comes of it now."""
    if event[0] == "time":
        loop = asyncio.get_running_loop()
        assert isinstance(loop, ManualLoop)
        loop.now += event[1]
    elif event[0] == "round":
        for world in worlds:
            for follower in world.followers.values():
                if not follower.waiting:
                    world.fetch(follower, WAIT_MS)
    else:
        for world in worlds:
            happen(world, event)
    await settle(worlds)


@settings(
    max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
@given(history=events())
def test_all_is_as_if_every_fetch_looked_at_every_partition(
    runner: asyncio.Runner, broker: BrokerContext, monkeypatch: pytest.MonkeyPatch, history: list[tuple[Any, ...]]
) -> None:
    loop = runner.get_loop()
    assert isinstance(loop, ManualLoop)

    async def story() -> None:
        number = next(NAMES)
        worlds = [World(broker, await make_topic(broker, f"{name}-{number}", 3)) for name in ("rests", "walks")]
        by_topic = {world.topic.name: world for world in worlds}

        def may_grow(_: ReplicaManager, partition: LeaderPartition) -> None:
            by_topic[partition.tp.topic].may_grow.append(partition.tp.partition)

        monkeypatch.setattr(ReplicaManager, "isr_may_grow", may_grow)
        for event in spelled([("append", 0), ("append", 1), ("calm",), *history, ("calm",)]):
            await tell(worlds, event)
            rests, walks = (world.knowledge(loop.now) for world in worlds)
            assert rests == walks, event
        assert worlds[0].topic.name in RESTED
        rested, walked = (world.times() for world in worlds)
        assert rested == walked
        await broker.controller.delete_topics([world.topic.name for world in worlds])
        await broker.replicas.settled()

    runner.run(story())


def test_a_fetch_that_commits_a_record_hears_of_what_is_appended_for_it_to_a_partition_at_rest(
    runner: asyncio.Runner, broker: BrokerContext
) -> None:
    """As a coordinator's record, when the marker of its transaction is committed. The clock stands still meanwhile."""

    async def story() -> None:
        world = World(broker, await make_topic(broker, f"rests-{next(NAMES)}", 3))
        for event in spelled([("append", 0), ("append", 1), ("calm",)]):
            await tell([world], event)
        first, second = world.led(0), world.led(1)
        assert first is not None
        assert second is not None
        assert set(second._resting) == set(REPLICAS)
        append(first, [NOW])
        first.when_committed(first.log.log_end_offset, lambda _: append(second, [NOW]))
        await settle([world])
        for _ in range(2):
            await tell([world], ("round",))
        assert second.log.log_end_offset == 2
        assert [each.offsets[1] for each in world.followers.values()] == [2, 2]

    runner.run(story())
