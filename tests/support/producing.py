"""Producing to topic `t` of a broker without sockets, and what became of it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from barnabas.broker.handlers.fetch import fetch
from barnabas.broker.handlers.produce import produce
from barnabas.protocol.records.builder import build_batch
from barnabas.protocol.records.records import Record
from tests.support.images import CALLER
from tests.support.logs import split
from tests.support.produce_fetch import fetch_request, fetched, produce_request

if TYPE_CHECKING:
    from barnabas.broker.context import BrokerContext
    from barnabas.broker.replication.leader_partition import LeaderPartition
    from barnabas.machines.controller.image import TopicImage
    from barnabas.net.reply import Answer, Parked

NOW = 1_700_000_000_000


def batch(count: int = 3, **fields: Any) -> bytes:
    """A batch of so many equal records."""
    records = [Record(delta, 0, b"key", b"value" * 20) for delta in range(count)]
    return build_batch(records, base_timestamp=NOW, **fields)


def send(broker: BrokerContext, version: int, records: bytes | None, index: int = 0, **request: Any) -> Answer | Parked:
    """Produce to a partition of topic `t`."""
    topic = broker.metadata.topic("t")
    assert topic is not None
    frame = produce_request(version, {("t", topic.topic_id, index): records}, **request)
    return produce(broker, CALLER, version, 5, frame, 0)


def stored(broker: BrokerContext, index: int = 0) -> list[bytes]:
    """The batches of a partition, as a consumer gets them."""
    topic = broker.metadata.topic("t")
    assert topic is not None
    frame = fetch_request(12, {("t", topic.topic_id): {index: 0}}, session_epoch=-1)
    records = fetched(12, fetch(broker, CALLER, 12, 5, frame, 0)).responses[0].partitions[0].records
    batches = split(records)
    assert b"".join(batches) == records, "nothing but whole batches"
    return batches


def now_led(broker: BrokerContext, topic: TopicImage, **state: Any) -> None:
    """Tell the broker of another state of a topic's first partition."""
    first, *rest = topic.partitions
    broker.replicas.take_all([replace(topic, partitions=(replace(first, **state), *rest))])


def lead_anew(broker: BrokerContext, name: str = "t") -> None:
    """Tell the broker that it leads the partitions of a topic in the next leader epoch, alone."""
    topic = broker.metadata.topic(name)
    assert topic is not None
    epochs = [broker.replicas.find(name, index).leader.leader_epoch for index in range(len(topic.partitions))]
    images = [
        replace(image, leader_epoch=epoch + 1, replicas=(image.leader,), isr=(image.leader,))
        for image, epoch in zip(topic.partitions, epochs, strict=True)
    ]
    broker.replicas.take_all([replace(topic, partitions=tuple(images))])


def with_follower(broker: BrokerContext, name: str = "t", index: int = 0) -> LeaderPartition:
    """Tell the broker that broker 7 follows a partition, in sync; the partition as it is led from then on."""
    topic = broker.metadata.topic(name)
    assert topic is not None
    partitions = list(topic.partitions)
    replicas = (partitions[index].leader, 7)
    partitions[index] = replace(partitions[index], replicas=replicas, isr=replicas)
    broker.replicas.take_all([replace(topic, partitions=tuple(partitions))])
    return broker.replicas.find(name, index)
