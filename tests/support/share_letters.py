"""Dead letters on one broker without sockets: a group that has a topic for them, and what is in that topic."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, NamedTuple

from barnabas.machines.controller.image import ConfigResource
from barnabas.machines.controller.requests import AlterConfigs, DeleteTopics
from barnabas.machines.shares.coordinator import ShareKey
from barnabas.machines.shares.state_batches import DeliveryState
from barnabas.model.errors import ErrorCode
from barnabas.protocol.dead_letters import DELIVERY_COUNT, GROUP, MESSAGE, OFFSET, PARTITION, TOPIC
from barnabas.protocol.records.batch import HEADER_SIZE, read_header
from barnabas.protocol.records.builder import build_batch
from barnabas.protocol.records.compression import MAX_UNPACKED, decompress
from barnabas.protocol.records.records import Header, Record, read_records
from tests.support.parts import make_topic
from tests.support.share_members import GROUP as WORKERS
from tests.support.share_members import REJECT, Member, acquired

if TYPE_CHECKING:
    from collections.abc import Callable
    from uuid import UUID

    from barnabas.broker.context import BrokerContext
    from barnabas.broker.shares.hosted import HostedSharePartition
    from barnabas.machines.controller.image import TopicImage
    from barnabas.machines.shares.coordinator import StoredState

DEAD = "dlq.jobs"
NOW = 1_700_000_000_000


class Letter(NamedTuple):
    """A dead letter, as a program sees it."""

    offset: int
    deliveries: int
    reason: str
    key: bytes | None
    value: bytes | None
    others: tuple[tuple[str, bytes | None], ...]
    """The headers of the message itself."""


async def make_dead(broker: BrokerContext, name: str = DEAD, partitions: int = 1, **configs: str) -> TopicImage:
    """A topic that takes dead letters."""
    configs["errors_deadletterqueue_group_enable"] = "true"
    return await make_topic(broker, name, partitions, ready=True, **configs)


async def configure(broker: BrokerContext, **settings: str) -> None:
    """Give the group these settings and no others; dots are written as underscores."""
    named = {name.replace("_", "."): text for name, text in settings.items()}
    await broker.controller.decide(AlterConfigs({ConfigResource("groups", WORKERS): named}))


async def have_dead_letters(broker: BrokerContext, topic: str = DEAD, *, copies: bool = True) -> None:
    """Let the group have dead letters in a topic."""
    await configure(
        broker, errors_deadletterqueue_topic_name=topic, errors_deadletterqueue_copy_record_enable=str(copies).lower()
    )


async def delete_topic(broker: BrokerContext, name: str = DEAD) -> None:
    await broker.controller.decide(DeleteTopics([name]))
    await broker.replicas.settled()


async def until(condition: Callable[[], object], what: str, seconds: float = 10.0) -> None:
    """Wait for something that happens on the event loop."""
    deadline = asyncio.get_running_loop().time() + seconds
    while not condition():
        assert asyncio.get_running_loop().time() < deadline, f"waited in vain for {what}"
        await asyncio.sleep(0.01)


def letters(broker: BrokerContext, topic: str = DEAD, partition: int = 0) -> list[Letter]:
    """The dead letters in a partition."""
    led = broker.replicas.led(topic, partition)
    return [] if led is None else [_letter(record) for record in _records(led.log)]


def _records(log: Any) -> list[Record]:
    found: list[Record] = []
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        result = log.read(offset, 1 << 20, log.log_end_offset, min_one=True)
        data = b"".join(part.file.read(part.length, part.position) for part in result.slices)
        header = read_header(data)
        found += read_records(
            decompress(header.codec, data[HEADER_SIZE : header.size], MAX_UNPACKED), header.record_count
        )
        offset = header.last_offset + 1
    return found


def _letter(record: Record) -> Letter:
    own = {each.key: (each.value or b"").decode() for each in record.headers[-6:]}
    assert list(own) == [TOPIC, PARTITION, OFFSET, GROUP, DELIVERY_COUNT, MESSAGE]
    assert (own[TOPIC], own[PARTITION], own[GROUP]) == ("jobs", "0", WORKERS)
    return Letter(
        int(own[OFFSET]),
        int(own[DELIVERY_COUNT]),
        own[MESSAGE],
        record.key,
        record.value,
        tuple((each.key, each.value) for each in record.headers[:-6]),
    )


def hosted(broker: BrokerContext, topic_id: UUID) -> HostedSharePartition:
    """The share partition of the group."""
    return broker.shares._hosted[ShareKey(WORKERS, topic_id, 0)]


def stored(broker: BrokerContext) -> StoredState:
    """What the share coordinator has of the group."""
    for shard in broker.share_coordinators.runtime._shards.values():
        if shard.machine is not None and shard.machine.states:
            (state,) = shard.machine.states.values()
            return state
    raise AssertionError("nothing is stored of the group")


def done_before(broker: BrokerContext) -> int:
    """The first offset that is not done with, as the share coordinator knows: the start moves with the next write."""
    state = stored(broker)
    at = state.start_offset
    for first, last, delivery_state, _ in state.batches:
        if first > at or not DeliveryState(delivery_state).is_final:
            break
        at = last + 1
    return at


def produce(broker: BrokerContext, *records: Record, **batch: Any) -> None:
    partition = broker.replicas.find("jobs", 0)
    numbered = [record._replace(offset_delta=number) for number, record in enumerate(records)]
    data = build_batch(numbered, base_timestamp=NOW, **batch)
    partition.append(data, partition.check(data, NOW, 13), NOW)


def message(value: bytes | None, key: bytes | None = None, **headers: bytes | None) -> Record:
    return Record(0, 0, key, value, tuple(Header(name, text) for name, text in headers.items()))


async def reject(broker: BrokerContext, topic_id: Any, first: int, last: int) -> Member:
    """A worker that takes everything, and rejects some of it."""
    anna = Member(broker, topic_id, "anna")
    assert acquired(await anna.fetch(wait_ms=5000))
    assert await anna.acknowledge((first, last, REJECT)) is ErrorCode.none
    return anna


async def archived(broker: BrokerContext, start_offset: int) -> None:
    await until(lambda: done_before(broker) == start_offset, f"all messages before {start_offset} to be done with")


async def round_over(broker: BrokerContext, topic_id: Any, rounds: int = 1) -> None:
    await until(lambda: hosted(broker, topic_id).archiver.failures >= 5 * rounds, "five attempts")
