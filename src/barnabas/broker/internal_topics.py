"""The topics that brokers keep their own state in: made when first needed, with the settings that they must have."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final, NamedTuple

from barnabas.machines.controller.requests import NewTopic
from barnabas.model.errors import ApiError, TopicAlreadyExists

if TYPE_CHECKING:
    from collections.abc import Mapping

    from barnabas.broker.context import Broker

logger = logging.getLogger(__name__)

CONSUMER_OFFSETS: Final = "__consumer_offsets"
TRANSACTION_STATE: Final = "__transaction_state"


class _Keys(NamedTuple):
    """Where a topic's settings come from."""

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
}


async def make(broker: Broker, name: str) -> None:
    """Make the topic if it is not there; returns when this broker leads what it has of it. Raises ApiError.

    A replication factor that nobody set is not more than there are brokers, so that one broker alone can work; nor must
    more replicas be in sync than there are.
    """
    if broker.metadata.topic(name) is None:
        made = (await broker.cluster.link.create_topics([_definition(broker, name)]))[name]
        if isinstance(made, ApiError) and not isinstance(made, TopicAlreadyExists):  # others may need it at once
            logger.error("cannot make %s: %s", name, made)
            raise made
    await broker.replicas.settled()


def _definition(broker: Broker, name: str) -> NewTopic:
    keys, settings = _TOPICS[name], broker.settings
    replicas = settings.number(keys.replication_factor)
    if keys.replication_factor not in settings.static.parsed:
        replicas = max(1, min(replicas, len(broker.metadata.image.brokers)))
    configs = {
        "cleanup.policy": "compact",
        "compression.type": "producer",
        "segment.bytes": str(settings.number(keys.segment_bytes)),
    }
    if keys.min_insync_replicas is not None:
        configs |= {"compression.type": "uncompressed", "unclean.leader.election.enable": "false"}
        configs["min.insync.replicas"] = str(min(replicas, settings.number(keys.min_insync_replicas)))
    return NewTopic(name, settings.number(keys.partitions), replicas, (), configs)
