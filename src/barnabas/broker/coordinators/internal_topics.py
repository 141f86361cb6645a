"""The internal topics, in which coordinators keep their state: created when first needed, with fixed settings."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final, NamedTuple

from barnabas.machines.controller.requests import TopicToCreate
from barnabas.model.errors import ApiError, TopicAlreadyExists
from barnabas.model.internal_topics import CONSUMER_OFFSETS, SHARE_GROUP_STATE, TRANSACTION_STATE

if TYPE_CHECKING:
    from collections.abc import Mapping

    from barnabas.broker.context import BrokerContext

logger = logging.getLogger(__name__)


class _Keys(NamedTuple):
    """The broker settings that a topic's settings come from."""

    partitions: str
    replication_factor: str
    segment_bytes: str
    min_insync_replicas: str | None = None


_TOPICS: Final[Mapping[str, _Keys]] = {
    CONSUMER_OFFSETS: _Keys(
        "offsets.topic.num.partitions", "offsets.topic.replication.factor", "offsets.topic.segment.bytes"
    ),
    TRANSACTION_STATE: _Keys(
        "transaction.state.log.num.partitions",
        "transaction.state.log.replication.factor",
        "transaction.state.log.segment.bytes",
        "transaction.state.log.min.isr",
    ),
    SHARE_GROUP_STATE: _Keys(
        "share.coordinator.state.topic.num.partitions",
        "share.coordinator.state.topic.replication.factor",
        "share.coordinator.state.topic.segment.bytes",
        "share.coordinator.state.topic.min.isr",
    ),
}
_CONFIGS: Final[Mapping[str, Mapping[str, str]]] = {
    CONSUMER_OFFSETS: {"cleanup.policy": "compact", "compression.type": "producer"},
    TRANSACTION_STATE: {
        "cleanup.policy": "compact",
        "compression.type": "uncompressed",
        "unclean.leader.election.enable": "false",
    },
    SHARE_GROUP_STATE: {"cleanup.policy": "delete", "compression.type": "producer", "retention.ms": "-1"},
}
"""What Kafka's coordinators fix. The share coordinator deletes records itself, when snapshots have replaced them."""


async def make(broker: BrokerContext, name: str) -> None:
    """Create the topic if it does not exist; returns when this broker leads its partitions of it. Raises ApiError.

    A replication factor that is not configured is at most the number of brokers, so that a broker can work alone. And
    min.insync.replicas is at most the replication factor.
    """
    if broker.metadata.topic(name) is None:
        created = (await broker.controller_link.create_topics([_definition(broker, name)]))[name]
        if isinstance(created, ApiError) and not isinstance(created, TopicAlreadyExists):  # another broker was faster
            logger.error(
                "Could not create internal topic %s. The next request that needs it tries again: %s", name, created
            )
            raise created
    await broker.replicas.settled()


def _definition(broker: BrokerContext, name: str) -> TopicToCreate:
    keys, settings = _TOPICS[name], broker.settings
    replicas = settings.number(keys.replication_factor)
    if keys.replication_factor not in settings.static.parsed:
        replicas = max(1, min(replicas, len(broker.metadata.image.brokers)))
    configs = {**_CONFIGS[name], "segment.bytes": str(settings.number(keys.segment_bytes))}
    if keys.min_insync_replicas is not None:
        configs["min.insync.replicas"] = str(min(replicas, settings.number(keys.min_insync_replicas)))
    return TopicToCreate(name, settings.number(keys.partitions), replicas, (), configs)
