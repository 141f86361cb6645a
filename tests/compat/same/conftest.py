"""Barnabas and Apache Kafka 4.3.0, side by side.

`BARNABAS_TEST_KAFKA=host:port` takes a Kafka 4.3.0 that is already running instead of starting one; it should have the
settings below.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

import pytest

from tests.compat.same.scene import Scene
from tests.support.brokers import KafkaKRaft
from tests.support.groups import QUICK
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

SETTINGS: Final = {
    **QUICK,
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "5",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "share.coordinator.state.topic.num.partitions": "5",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "50",
    "log.initial.task.delay.ms": "86400000",
}
"""A Kafka that is alone, coordinates transactions and share groups, and looks often for those that take too long.

It deletes nothing, as Barnabas does here: half a minute after its start it would look for the first time for records
that are too old, and those of the tests are.
"""


@pytest.fixture(scope="session")
def apache_kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of an Apache Kafka 4.3.0."""
    running = os.environ.get("BARNABAS_TEST_KAFKA")
    if running:
        yield running
        return
    with KafkaKRaft(tmp_path_factory.mktemp("kafka"), SETTINGS) as kafka:
        yield kafka.bootstrap


@pytest.fixture(scope="session")
def scenes(bootstrap: str, apache_kafka: str) -> Iterator[tuple[Scene, Scene]]:
    """Barnabas and Apache Kafka."""
    ours, theirs = Scene(bootstrap), Scene(apache_kafka)
    wait_until(lambda: ours.has_producer_ids() and theirs.has_producer_ids(), "producer ids")
    wait_until(lambda: ours.has_coordinators() and theirs.has_coordinators(), "coordinators of groups")
    wait_until(lambda: ours.has_transactions() and theirs.has_transactions(), "coordinators of transactions")
    yield ours, theirs
    for scene in (ours, theirs):
        scene.connection.socket.close()
