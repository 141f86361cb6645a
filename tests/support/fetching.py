"""Fetching from topic `t` of a broker without sockets."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from barnabas.broker.handlers.fetch import fetch
from tests.support.images import CALLER, proved
from tests.support.produce_fetch import fetch_request

if TYPE_CHECKING:
    from barnabas.broker.context import BrokerContext
    from barnabas.broker.replication.leader_partition import LeaderPartition
    from barnabas.broker.serving.caller import Caller
    from barnabas.net.reply import Answer, Parked

NOW = 1_700_000_000_000


def ask(
    broker: BrokerContext, version: int, offsets: dict[int, int], caller: Caller | None = None, **fields: Any
) -> Answer | Parked:
    """Fetch from partitions of topic `t`; with a `replica_id`, as the broker that it is."""
    caller = caller or (proved(fields["replica_id"]) if "replica_id" in fields else CALLER)
    topic = broker.metadata.topic("t")
    assert topic is not None
    frame = fetch_request(version, {("t", topic.topic_id): offsets} if offsets else {}, **fields)
    return fetch(broker, caller, version, 5, frame, 0)


def partition_of(broker: BrokerContext, index: int = 0) -> LeaderPartition:
    """A partition of topic `t`, which this broker leads."""
    partition = broker.replicas.get("t", index)
    assert partition is not None
    return partition


def partitions_in(response: Any) -> list[Any]:
    """What a response says of each partition."""
    return [partition for topic in response.responses for partition in topic.partitions]
