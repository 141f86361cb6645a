"""A cluster inside this process: librdkafka's own mock of a broker, which answers within milliseconds."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Producer

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="session")
def mock_cluster() -> Iterator[str]:
    """The address of a mock broker; topics come into being when they are named, with four partitions."""
    cluster = Producer({"bootstrap.servers": "mock", "test.mock.num.brokers": 1, "log_level": 0})
    (broker,) = cluster.list_topics(timeout=10).brokers.values()
    yield f"{broker.host}:{broker.port}"
    del cluster


@pytest.fixture
def topic() -> str:
    """A name that no topic has yet."""
    return f"t-{uuid.uuid4().hex[:12]}"
