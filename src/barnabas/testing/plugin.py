"""The pytest plugin: a broker for the test run, and Kafka for each test.

    kafka_broker    a `Broker`, one for all tests of a run (under pytest-xdist: one for each worker)
    kafka           a `Kafka` on it: names, topics and clients of this test's own
    kafka_topic     the name of a topic with one partition, made for this test
    kafka_config    Kafka's settings for the broker; define it in conftest.py to have others

The broker starts with the first test that wants it. Faults end with their test, and a broker that a test stopped is
started again for the next. If a test fails, its report shows what the broker logged meanwhile.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator, Mapping

    from barnabas.testing.broker import Broker
    from barnabas.testing.kafka import Kafka

BROKER = pytest.StashKey["Broker"]()
"""The broker of the run, in the session's stash."""
LOGGED = pytest.StashKey[int]()
"""How much the broker had logged when a test began, in the test's stash."""
SHOWN_LINES = 100


@pytest.fixture(scope="session")
def kafka_config() -> Mapping[str, object]:
    """Kafka's settings for the broker of the test run, as {"num.partitions": 3}."""
    return {}


@pytest.fixture(scope="session")
def kafka_broker(request: pytest.FixtureRequest, kafka_config: Mapping[str, object]) -> Iterator[Broker]:
    """A real broker, shared by all tests of this run; clients reach it at `kafka_broker.bootstrap_servers`."""
    from barnabas.testing.broker import Broker

    with Broker(kafka_config) as broker:
        request.session.stash[BROKER] = broker
        yield broker
        del request.session.stash[BROKER]


@pytest.fixture
def kafka(request: pytest.FixtureRequest, kafka_broker: Broker) -> Iterator[Kafka]:
    """Kafka for this test: `kafka.topic()`, `kafka.producer()`, `kafka.consumer()`, `kafka.admin`, `kafka.faults`."""
    from barnabas.testing.kafka import Kafka

    kafka_broker.start()
    with Kafka(kafka_broker, request.node.name) as kafka:
        yield kafka


@pytest.fixture
def kafka_topic(kafka: Kafka) -> str:
    """A topic with one partition, for this test alone."""
    return kafka.topic()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup(item: pytest.Item) -> Generator[None, None, None]:
    """Note how much the broker has logged, before the test's fixtures begin."""
    broker = item.session.stash.get(BROKER, None)
    item.stash[LOGGED] = 0 if broker is None else broker.log_file.stat().st_size
    return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None, None, None]:
    """Remove the faults that the test left, also if it used the broker alone."""
    try:
        return (yield)
    finally:
        broker = item.session.stash.get(BROKER, None)
        if broker is not None:
            broker.faults.clear()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Show with a failed test what the broker logged while it ran."""
    report = yield
    broker = item.session.stash.get(BROKER, None)
    if report.failed and broker is not None and "kafka_broker" in getattr(item, "fixturenames", ()):
        with broker.log_file.open("rb") as log:
            log.seek(item.stash.get(LOGGED, 0))
            lines = log.read().decode(errors="replace").splitlines()
        if lines:
            report.sections.append(("Kafka broker log", "\n".join(lines[-SHOWN_LINES:])))
    return report
