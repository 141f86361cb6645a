"""One broker for all the clients of a test run.

`BARNABAS_TEST_BOOTSTRAP=host:port` runs the same tests against any Kafka instead. That is how the tests themselves
are known to be right: what they ask for must be what Apache Kafka does. (It should have the settings of
`tests.support.groups.QUICK`: with Kafka's own, groups take seconds for each of their steps.)
"""

from __future__ import annotations

import os
import uuid
from typing import TYPE_CHECKING

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from tests.support.brokers import Barnabas
from tests.support.groups import QUICK
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from confluent_kafka import Producer

    TopicMaker = Callable[..., str]


@pytest.fixture(scope="session")
def bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of the broker under test."""
    given = os.environ.get("BARNABAS_TEST_BOOTSTRAP")
    if given:
        yield given
        return
    with Barnabas(tmp_path_factory.mktemp("broker"), QUICK) as broker:
        yield broker.bootstrap
        assert broker.alive, broker.tail()
        assert broker.stop() == 0, broker.tail()


@pytest.fixture(scope="session")
def admin(bootstrap: str) -> AdminClient:
    """An admin client for setting the scene, where the scene is not what is tested."""
    return AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})


@pytest.fixture
def unused_topic() -> str:
    """A name that no topic has."""
    return f"t-{uuid.uuid4().hex[:12]}"


@pytest.fixture
def new_topic(admin: AdminClient) -> TopicMaker:
    """Make a topic with a fresh name: `new_topic(partitions, {"segment.bytes": "..."})`."""

    def make(partitions: int = 1, config: dict[str, str] | None = None) -> str:
        name = f"t-{uuid.uuid4().hex[:12]}"
        topic = NewTopic(name, num_partitions=partitions, replication_factor=1, config=config or {})
        admin.create_topics([topic])[name].result(30)
        wait_until(lambda: has_leaders(admin, name, partitions), f"leaders of {name}")
        return name

    return make


def has_leaders(client: AdminClient | Producer, topic: str, partitions: int) -> bool:
    """Whether clients are told of this topic, with a leader for each of its partitions."""
    found = client.list_topics(topic, timeout=30).topics[topic].partitions
    return len(found) == partitions and all(partition.leader >= 0 for partition in found.values())
