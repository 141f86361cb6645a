"""A broker put together without its sockets: real controller, real logs, real settings, in a temporary directory."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, closing
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from barnabas.broker.app import FEATURES
from barnabas.broker.cluster import Cluster
from barnabas.broker.context import Broker
from barnabas.broker.controller import Controller
from barnabas.broker.groups import Groups
from barnabas.broker.opening import Opening
from barnabas.broker.producer_ids import ProducerIdSource
from barnabas.broker.replicas import ReplicaManager
from barnabas.broker.settings import Settings
from barnabas.broker.transactions import Transactions
from barnabas.machines.controller.image import Endpoint
from barnabas.machines.controller.requests import NewTopic
from barnabas.machines.controller.topics import TopicDefaults
from barnabas.machines.fetch_session import FetchSessionCache
from barnabas.metadata.cache import MetadataCache
from barnabas.metadata.sqlite import SqliteStore
from barnabas.metadata.znodes import Registration
from barnabas.model.clock import ManualClock
from barnabas.model.config.broker import BrokerConfig
from barnabas.net.reply import Answer, Parked
from barnabas.protocol.records.builder import build_batch
from barnabas.protocol.records.records import Record
from barnabas.storage.manager import LogManager

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
    from pathlib import Path

    from barnabas.broker.partition import Partition
    from barnabas.machines.controller.image import TopicImage
    from barnabas.storage.files import FileSystem


@asynccontextmanager
async def running_parts(
    directory: Path, properties: Mapping[str, str] | None = None, files: FileSystem | None = None
) -> AsyncIterator[Broker]:
    """Broker 1, registered, in office, and leading everything; its logs are in `files`."""
    config = BrokerConfig.load({"log.dirs": str(directory / "data"), **(properties or {})})
    clock = ManualClock()
    cache = MetadataCache()
    settings = Settings(config, cache)
    logs = LogManager(config.log_dirs, clock=clock, files=files)
    defaults = TopicDefaults(settings.number("num.partitions"), settings.number("default.replication.factor"))
    controller = Controller(lambda: SqliteStore(directory / "metadata"), cache, clock, defaults=defaults)
    with ThreadPoolExecutor(2, "parts") as executor, closing(Opening(1 << 20)) as opening:
        producer_ids = ProducerIdSource(controller.allocate_producer_ids)
        replicas = ReplicaManager(config.node_id, logs, settings, cache, executor)
        groups = Groups(replicas=replicas, metadata=cache, settings=settings, clock=clock, executor=executor)
        image = await controller.open()
        try:
            logs.load(broker_id=config.node_id, cluster_id=image.cluster_id, configs={})
            cluster = Cluster(
                config.node_id,
                controller=controller,
                replicas=replicas,
                metadata=cache,
                settings=settings,
                clock=clock,
                executor=executor,
            )
            transactions = Transactions(
                config.node_id,
                replicas=replicas,
                metadata=cache,
                settings=settings,
                groups=groups,
                peers=cluster.peers,
                producer_ids=producer_ids,
                clock=clock,
                executor=executor,
            )
            cache.subscribe(replicas.on_change)
            settings.subscribe(replicas.on_settings)
            endpoints = {"PLAINTEXT": Endpoint("localhost", 9092)}
            await controller.start(
                Registration(broker_id=config.node_id, endpoints=endpoints, incarnation_id=uuid4(), features=FEATURES)
            )
            await replicas.settled()
            yield Broker(
                broker_id=config.node_id,
                settings=settings,
                clock=clock,
                logs=logs,
                replicas=replicas,
                metadata=cache,
                controller=controller,
                fetch_sessions=FetchSessionCache(
                    slots=10,
                    eviction_ms=120_000,
                    new_id=iter(range(1, 1000)).__next__,
                ),
                producer_ids=producer_ids,
                groups=groups,
                transactions=transactions,
                cluster=cluster,
                executor=executor,
                opening=opening,
            )
            await transactions.stop()
            groups.runtime.resign()
            await groups.runtime.loaded()
        finally:
            await cluster.stop()
            await controller.stop()
            logs.close()


def run(directory: Path, story: Callable[[Broker], Awaitable[None]], **properties: str) -> None:
    """Tell a story of such a broker; settings are written with underscores."""

    async def main() -> None:
        settings = {name.replace("_", "."): text for name, text in properties.items()}
        async with running_parts(directory, settings) as broker:
            await story(broker)

    asyncio.run(main())


async def make_topic(
    broker: Broker, name: str, partitions: int = 1, *, ready: bool = True, **configs: str
) -> TopicImage:
    """A new topic, `ready` to be appended to on the event loop; configuration keys are written with underscores."""
    settings = {key.replace("_", "."): text for key, text in configs.items()}
    made = (await broker.controller.create_topics([NewTopic(name, partitions, 1, (), settings)]))[name]
    assert not isinstance(made, Exception), made
    await broker.replicas.settled()
    for index in range(partitions if ready else 0):
        broker.replicas.find(name, index).log.prepare()
    return made


def append(partition: Partition, timestamps: Sequence[int], **batch: Any) -> None:
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
