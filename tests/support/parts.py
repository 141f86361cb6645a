"""A broker as `assembly` puts it together, without sockets: real membership, logs and settings in a folder."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from itertools import count
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from barnabas.broker.app import FEATURES
from barnabas.broker.assembly import BrokerOptions, assemble
from barnabas.machines.controller.image import Endpoint
from barnabas.machines.controller.requests import TopicToCreate
from barnabas.metadata.stores.sqlite import SqliteStore
from barnabas.metadata.znodes import Registration
from barnabas.model.clock import ManualClock
from barnabas.model.config.broker import BrokerConfig
from barnabas.net.channel import Channel
from barnabas.net.reply import Answer, Parked
from barnabas.protocol.records.builder import build_batch
from barnabas.protocol.records.records import Record
from barnabas.storage.files import FileSystem

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
    from pathlib import Path

    from barnabas.broker.context import BrokerContext
    from barnabas.broker.controller.peers import MakeChannel
    from barnabas.broker.replication.leader_partition import LeaderPartition
    from barnabas.machines.controller.image import TopicImage


@asynccontextmanager
async def running_parts(
    directory: Path,
    properties: Mapping[str, str] | None = None,
    files: FileSystem | None = None,
    make_channel: MakeChannel = Channel,
    **parts: Any,
) -> AsyncIterator[BrokerContext]:
    """Broker 1, registered, the active controller, and leading everything; its logs are in `files`.

    `parts` are further ones that are not a real broker's (`BrokerOptions`).
    """
    config = BrokerConfig.load({"log.dirs": str(directory / "data"), **(properties or {})})
    assembly = assemble(
        config,
        BrokerOptions(
            clock=ManualClock(),
            files=files or FileSystem(),
            make_channel=make_channel,
            make_fetch_session_id=count(1).__next__,
            **{"open_store": lambda config: SqliteStore(directory / "metadata"), **parts},
        ),
    )
    broker = assembly.broker
    try:
        image = await broker.membership.open()
        broker.logs.load(broker_id=config.node_id, cluster_id=image.cluster_id, configs={})
        endpoints = {"PLAINTEXT": Endpoint("localhost", 9092)}
        await broker.membership.start(
            Registration(broker_id=config.node_id, endpoints=endpoints, incarnation_id=uuid4(), features=FEATURES)
        )
        await broker.replicas.settled()
        yield broker
        await broker.shares.stop()
        await broker.transactions.stop()
        await broker.groups.stop()
        for runtime in (broker.groups.runtime, broker.share_coordinators.runtime):
            runtime.resign()
            await runtime.loaded()
    finally:
        await assembly.inter_broker.stop()
        await broker.membership.stop()
        broker.logs.close()
        broker.validation_pool.close()
        broker.executor.shutdown()


async def run(directory: Path, story: Callable[[BrokerContext], Awaitable[None]], **properties: str) -> None:
    """Tell a story of such a broker; settings are written with underscores."""

    async def main() -> None:
        settings = {name.replace("_", "."): text for name, text in properties.items()}
        async with running_parts(directory, settings) as broker:
            await story(broker)

    await main()


async def make_topic(
    broker: BrokerContext, name: str, partitions: int = 1, *, ready: bool = True, **configs: str
) -> TopicImage:
    """A new topic, `ready` to be appended to on the event loop; configuration keys are written with underscores."""
    settings = {key.replace("_", "."): text for key, text in configs.items()}
    made = (await broker.controller.create_topics([TopicToCreate(name, partitions, 1, (), settings)]))[name]
    assert not isinstance(made, Exception), made
    await broker.replicas.settled()
    for index in range(partitions if ready else 0):
        broker.replicas.find(name, index).log.prepare()
    return made


def append(partition: LeaderPartition, timestamps: Sequence[int], **batch: Any) -> None:
    """Append one batch with a record for each timestamp."""
    records = [Record(delta, timestamp - timestamps[0], None, b"value") for delta, timestamp in enumerate(timestamps)]
    data = build_batch(records, base_timestamp=timestamps[0], **batch)
    now_ms = 1_700_000_000_000
    partition.append(data, partition.check(data, now_ms, 13), now_ms)


async def answer_of(answer: Answer | Parked) -> Answer:
    """An answer that may have to be waited for."""
    if not isinstance(answer, Parked):
        return answer
    while not answer.resolved:  # it is also told when it may be overtaken
        done = asyncio.Event()
        answer.notify = done.set
        await asyncio.wait_for(done.wait(), 30)
    assert not isinstance(answer.answer, Parked)
    return answer.answer
