"""The image that a broker has after it has applied the controller's metadata updates."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.machines.controller.image import BrokerImage, ClusterImage, Endpoint, TopicImage
from barnabas.metadata.images.announcements import announcements
from barnabas.metadata.images.updates import led, stopped, updated
from barnabas.protocol.messages.inter_broker import LeaderAndIsrRequest, StopReplicaRequest, UpdateMetadataRequest

if TYPE_CHECKING:
    from collections.abc import Mapping

    from barnabas.metadata.images.announcements import Announcement

BROKER = BrokerImage(broker_id=1, epoch=10, endpoints={"PLAINTEXT": Endpoint("one", 9092)}, rack="r")
OTHER = BrokerImage(broker_id=2, epoch=11, endpoints={"PLAINTEXT": Endpoint("two", 9092)})


def image(found: Mapping[str, TopicImage], *brokers: BrokerImage) -> ClusterImage:
    return ClusterImage(
        controller_id=2,
        controller_epoch=3,
        brokers={broker.broker_id: broker for broker in brokers},
        topics=found,
        topic_names={topic.topic_id: name for name, topic in found.items()},
    )


def received(known: ClusterImage, message: Announcement, broker_id: int) -> ClusterImage:
    """The image `known`, after a message to this broker."""
    match message:
        case LeaderAndIsrRequest():
            return led(known, message)
        case UpdateMetadataRequest():
            return updated(known, message)
        case StopReplicaRequest():
            return stopped(known, message, broker_id)


def applied(known: ClusterImage, before: ClusterImage | None, after: ClusterImage) -> ClusterImage:
    """The image `known`, after the messages for the change from `before` to `after`."""
    for message in announcements(before, after, BROKER):
        known = received(known, message, BROKER.broker_id)
    return known
