"""Where the dead letters of a share group go (KIP-1191): which topic and partition, and whether it may be that one.

Brokers write dead letters in their own name, whatever the worker may do that rejects a message. So not every topic can
be named: its owner has to allow it (errors.deadletterqueue.group.enable), its name has to begin as the cluster says
(errors.deadletterqueue.topic.name.prefix), and it is no internal topic. Whoever sets the topic of a group needs
AlterConfigs on the group.

A partition of the messages has one of the dead letters, by the number of partitions there. The topic is created if
errors.deadletterqueue.auto.create.topics.enable says so.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final, NamedTuple

from barnabas.broker.shares.partitions import DEAD_LETTER_TOPIC
from barnabas.machines.controller.requests import TopicToCreate
from barnabas.model.config import group as group_config
from barnabas.model.errors import ApiError, InvalidConfig, NotLeaderOrFollower, TopicAlreadyExists

if TYPE_CHECKING:
    from uuid import UUID

    from barnabas.broker.context import BrokerContext
    from barnabas.metadata.images.cache import TopicImage

logger = logging.getLogger(__name__)

COPY_RECORD: Final = "errors.deadletterqueue.copy.record.enable"
PREFIX: Final = "errors.deadletterqueue.topic.name.prefix"
AUTO_CREATE: Final = "errors.deadletterqueue.auto.create.topics.enable"
GROUP_ENABLE: Final = "errors.deadletterqueue.group.enable"
INTERNAL: Final = "__"
CREATED_WITH: Final = {GROUP_ENABLE: "true", "message.timestamp.type": "CreateTime"}
"""As Kafka creates them: the time of a dead letter is that at which it was written."""


class LetterDestination(NamedTuple):
    """A partition for dead letters."""

    topic: str
    topic_id: UUID
    partition: int
    leader: int
    max_bytes: int
    """The largest batch that it takes, as far as this broker knows."""


class DeadLetterTopics:
    """The topics for dead letters, as the groups and the cluster have them at the moment."""

    def __init__(self, broker: BrokerContext) -> None:
        self._broker = broker

    def name(self, group_id: str) -> str:
        """The topic for the dead letters of a group; "" if it has none."""
        own = self._broker.shares.config_of(group_id)
        return str(group_config.value(DEAD_LETTER_TOPIC, own, self._broker.settings))

    def copies(self, group_id: str) -> bool:
        """Whether dead letters of a group have what the messages have."""
        own = self._broker.shares.config_of(group_id)
        return bool(group_config.value(COPY_RECORD, own, self._broker.settings))

    async def find(self, group_id: str, partition: int) -> LetterDestination:
        """Where the dead letters of a group go that come from this partition of a topic. Raises ApiError."""
        topic = await self._usable(self.name(group_id), group_id)
        place = topic.partitions[partition % len(topic.partitions)]
        if place.leader not in self._broker.metadata.image.brokers:
            raise NotLeaderOrFollower(f"Partition {place.index} of {topic.name} has no leader.")
        config = self._broker.settings.log_config(topic.name)
        most = min(config.max_message_bytes, config.segment_bytes)
        return LetterDestination(topic.name, topic.topic_id, place.index, place.leader, most)

    async def _usable(self, name: str, group_id: str) -> TopicImage:
        """The topic, if a group may have it for dead letters, in Kafka's order of checks."""
        settings, topic = self._broker.settings, self._broker.metadata.topic(name)
        if name.startswith(INTERNAL):
            raise InvalidConfig(
                f"{name} cannot be the topic for dead letters of {group_id}: it begins as internal topics."
            )
        if topic is not None and not settings.log_config(name).errors_deadletterqueue_group_enable:
            raise InvalidConfig(f"Topic {name} does not take dead letters: its {GROUP_ENABLE} is false.")
        if not name.startswith(settings.text(PREFIX)):
            raise InvalidConfig(f'{name} cannot be a topic for dead letters: {PREFIX} is "{settings.text(PREFIX)}".')
        if topic is not None:
            return topic
        if not settings.flag(AUTO_CREATE):
            raise InvalidConfig(f"There is no topic {name} for dead letters, and {AUTO_CREATE} is false.")
        return await self._create(name, group_id)

    async def _create(self, name: str, group_id: str) -> TopicImage:
        created = (await self._broker.controller_link.create_topics([TopicToCreate(name, configs=CREATED_WITH)]))[name]
        if isinstance(created, TopicAlreadyExists):  # another broker was faster
            raise NotLeaderOrFollower(f"Topic {name} was just created.")
        if isinstance(created, ApiError):
            raise created
        logger.info("Created topic %s for dead letters of share group %s.", name, group_id)
        await self._broker.replicas.settled()
        return self._broker.metadata.topic(name) or created
