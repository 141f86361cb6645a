"""The pytest plugin: brokers for the test run, and Kafka for each test.

    kafka_broker          a `Broker`, one for all tests of a run (under pytest-xdist: one for each worker)
    kafka                 a `Kafka` on it: names, topics and clients of this test's own
    kafka_topic           the name of a topic with one partition, made for this test
    kafka_config          Kafka's settings for the broker; define it in conftest.py to have others
    kafka_client_config   properties that all clients need, as for TLS; define it in conftest.py, too

    kafka_brokers         a `Cluster` of three, likewise one for all tests of a run
    kafka_cluster         a `KafkaCluster` on it: what `kafka` has, on three brokers
    kafka_cluster_config  Kafka's settings for the three; those of kafka_config unless it is defined

    kafka_secure_broker   a `SecureBroker`: TLS, logins and permissions, likewise one for all tests of a run
    kafka_secure          a `KafkaSecure` on it: what `kafka` has, with users, certificates and rules on demand

Brokers start with the first test that wants them. Faults end with their test, and a broker that a test stopped is
started again for the next. If a test fails, its report shows what its brokers logged meanwhile.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator, Mapping

    from barnabas.testing.broker import Broker
    from barnabas.testing.cluster import Cluster
    from barnabas.testing.kafka import Kafka, KafkaCluster
    from barnabas.testing.secure import KafkaSecure, SecureBroker

BROKERS = pytest.StashKey[dict[str, dict[str, "Broker"]]]()
"""The brokers that this run has started, by fixture and by what reports call them, in the session's stash."""
LOGGED = pytest.StashKey[dict[str, int]]()
"""How much each broker had logged when a test began, in the test's stash."""
SHOWN_LINES = 100


@pytest.fixture(scope="session")
def kafka_config() -> Mapping[str, object]:
    """Kafka's settings for the broker of the test run, as {"num.partitions": 3}."""
    return {}


@pytest.fixture(scope="session")
def kafka_client_config() -> Mapping[str, object]:
    """Properties that clients of the brokers need, as {"security.protocol": "SSL", "ssl.ca.location": "ca.pem"}."""
    return {}


@pytest.fixture(scope="session")
def kafka_cluster_config(kafka_config: Mapping[str, object]) -> Mapping[str, object]:
    """Kafka's settings for the three brokers of the test run."""
    return kafka_config


@pytest.fixture(scope="session")
def kafka_broker(
    request: pytest.FixtureRequest, kafka_config: Mapping[str, object], kafka_client_config: Mapping[str, object]
) -> Iterator[Broker]:
    """A real broker, shared by all tests of this run; clients reach it at `kafka_broker.bootstrap_servers`."""
    from barnabas.testing.broker import Broker

    with Broker(kafka_config, client_config=kafka_client_config) as broker:
        running = _running_brokers(request.session)
        running["kafka_broker"] = {"Kafka broker": broker}
        yield broker
        del running["kafka_broker"]


@pytest.fixture(scope="session")
def kafka_brokers(
    request: pytest.FixtureRequest,
    kafka_cluster_config: Mapping[str, object],
    kafka_client_config: Mapping[str, object],
) -> Iterator[Cluster]:
    """A real cluster of three, shared by all tests of this run; clients reach it at its `bootstrap_servers`."""
    from barnabas.testing.cluster import Cluster

    with Cluster(kafka_cluster_config, client_config=kafka_client_config) as cluster:
        running = _running_brokers(request.session)
        running["kafka_brokers"] = {f"Kafka broker {number}": broker for number, broker in enumerate(cluster.brokers)}
        yield cluster
        del running["kafka_brokers"]


@pytest.fixture
def kafka(request: pytest.FixtureRequest, kafka_broker: Broker) -> Iterator[Kafka]:
    """Kafka for this test: `kafka.topic()`, `kafka.producer()`, `kafka.consumer()`, `kafka.admin`, `kafka.faults`."""
    from barnabas.testing.kafka import Kafka

    kafka_broker.start()
    with Kafka(kafka_broker, request.node.name) as kafka:
        yield kafka


@pytest.fixture
def kafka_cluster(request: pytest.FixtureRequest, kafka_brokers: Cluster) -> Iterator[KafkaCluster]:
    """Three brokers for this test: what `kafka` has, and `kafka_cluster.brokers`, `.leader(topic)`, `.cluster`."""
    from barnabas.testing.kafka import KafkaCluster

    kafka_brokers.start()
    with KafkaCluster(kafka_brokers, request.node.name) as kafka:
        yield kafka


@pytest.fixture(scope="session")
def kafka_secure_broker(request: pytest.FixtureRequest, kafka_config: Mapping[str, object]) -> Iterator[SecureBroker]:
    """A real broker with TLS, logins and permissions, shared by all tests of this run."""
    from barnabas.testing.secure import SecureBroker

    with SecureBroker(kafka_config) as broker:
        running = _running_brokers(request.session)
        running["kafka_secure_broker"] = {"Secured Kafka broker": broker}
        yield broker
        del running["kafka_secure_broker"]


@pytest.fixture
def kafka_secure(request: pytest.FixtureRequest, kafka_secure_broker: SecureBroker) -> Iterator[KafkaSecure]:
    """A secured broker for this test: what `kafka` has, and `user("alice")`, `allow(...)`, `certificate("alice")`."""
    from barnabas.testing.secure import KafkaSecure

    kafka_secure_broker.start()
    with KafkaSecure(kafka_secure_broker, request.node.name) as kafka:
        yield kafka


@pytest.fixture
def kafka_topic(kafka: Kafka) -> str:
    """A topic with one partition, for this test alone."""
    return kafka.topic()


def _running_brokers(session: pytest.Session) -> dict[str, dict[str, Broker]]:
    return session.stash.setdefault(BROKERS, {})


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup(item: pytest.Item) -> Generator[None, None, None]:
    """Note how much brokers have logged, before the test's fixtures begin."""
    item.stash[LOGGED] = {
        name: broker.log_file.stat().st_size
        for brokers in _running_brokers(item.session).values()
        for name, broker in brokers.items()
    }
    return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None, None, None]:
    """Remove the faults that the test left, also if it used brokers alone."""
    try:
        return (yield)
    finally:
        for brokers in _running_brokers(item.session).values():
            for broker in brokers.values():
                broker.faults.clear()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Show with a failed test what its brokers logged while it ran."""
    report = yield
    if report.failed:
        for fixture, brokers in _running_brokers(item.session).items():
            for name, broker in brokers.items() if fixture in getattr(item, "fixturenames", ()) else ():
                lines = _logged_since(broker, item.stash.get(LOGGED, {}).get(name, 0))
                if lines:
                    report.sections.append((f"{name} log", "\n".join(lines[-SHOWN_LINES:])))
    return report


def _logged_since(broker: Broker, position: int) -> list[str]:
    with broker.log_file.open("rb") as log:
        log.seek(position)
        return log.read().decode(errors="replace").splitlines()
