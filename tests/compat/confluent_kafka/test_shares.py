"""confluent-kafka's ShareConsumer: messages are accepted, released and rejected, and two members share them."""

from __future__ import annotations

import time
import uuid
from typing import TYPE_CHECKING, Any

from confluent_kafka import AcknowledgeType, ShareConsumer

from barnabas.clients.admin.cluster_admin import ClusterAdmin
from barnabas.clients.admin.configs import EntityType
from tests.support.group_scenarios import send

if TYPE_CHECKING:
    from tests.compat.conftest import TopicMaker

PATIENCE = 60.0


def share_consumer(bootstrap: str, topic: str, group: str) -> Any:
    consumer = ShareConsumer(
        {"bootstrap.servers": bootstrap, "group.id": group, "share.acknowledgement.mode": "explicit"}
    )
    consumer.subscribe([topic])
    return consumer


def test_a_share_consumer_says_what_became_of_each_message(bootstrap: str, new_topic: TopicMaker) -> None:
    topic, group = new_topic(1), f"shares-{uuid.uuid4().hex[:8]}"
    send(bootstrap, topic, 1, 3)
    with ClusterAdmin(bootstrap) as cluster:
        cluster.configs.alter(EntityType.GROUPS, group, add={"share.auto.offset.reset": "earliest"}, delete=())
    said = {0: AcknowledgeType.ACCEPT, 1: AcknowledgeType.RELEASE, 2: AcknowledgeType.REJECT}
    seen: list[int] = []
    with share_consumer(bootstrap, topic, group) as consumer:
        deadline = time.monotonic() + PATIENCE
        while len(seen) < 4 and time.monotonic() < deadline:
            for message in consumer.poll(0.5):
                assert message.error() is None
                again = message.offset() in seen
                seen.append(message.offset())
                consumer.acknowledge(message, AcknowledgeType.ACCEPT if again else said[message.offset()])
            assert not any(consumer.commit_sync(10.0).values())
    assert sorted(seen) == [0, 1, 1, 2]
    with ClusterAdmin(bootstrap) as cluster:
        (offsets,) = cluster.share_groups.offsets([group])[group].values()
    assert offsets is not None
    assert offsets.lag == 0
