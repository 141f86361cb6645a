"""An EndTxn that is held up on its way, until its sender has asked again, and arrives in the next transaction.

The Java client speaks EndTxn v5: each of its transactions has an epoch of its own, and the late request ends nothing.
librdkafka speaks v1, where nobody can tell the late request from a timely one: it ends what is open, as it does with
Apache Kafka. A broker that would do the same to the Java client is caught.
"""

from __future__ import annotations

import asyncio
import os
import threading
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from aiokafka import AIOKafkaProducer
from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient
from kafka import KafkaProducer

from tests.history.checker import Fate, History, Kind, Send, check
from tests.history.workload import read_all
from tests.support.brokers import Barnabas
from tests.support.group_scenarios import create
from tests.support.holding import END_TXN, Holding
from tests.support.java_producers import JavaClients

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pytest

    from tests.history.checker import Violation
    from tests.support.java_producers import JavaProducer

TOPIC: Final = "late"
PARTITIONS: Final = 2
MISTAKE: Final = Path(__file__).with_name("planted_epochs")
SHORT_TIMEOUT: Final = {"transactional.id": "late", "request.timeout.ms": 1000, "max.block.ms": 60_000}


@contextmanager
def behind_a_proxy(folder: Path) -> Iterator[tuple[Holding, str]]:
    """A broker that clients reach through a proxy."""
    with Holding() as proxy:
        settings = {"advertised.listeners": f"PLAINTEXT://127.0.0.1:{proxy.port}"}
        with Barnabas(folder, settings) as broker:
            proxy.target = broker.port
            bootstrap = f"127.0.0.1:{proxy.port}"
            create(AdminClient({"bootstrap.servers": bootstrap}), TOPIC, PARTITIONS)
            yield proxy, bootstrap


def violations(proxy: Holding, bootstrap: str, producer: Producer | JavaProducer) -> list[Violation]:
    """The first transaction is committed, twice; the second is aborted. What is wrong with what is read then?"""
    sends = [Send("p", index % 2, f"v{index}", Fate.ACKNOWLEDGED, transaction="first") for index in range(2)]
    sends += [Send("p", index % 2, f"v{index}", Fate.REFUSED, transaction="second") for index in range(2, 4)]
    producer.init_transactions(30)
    producer.begin_transaction()
    for send in sends[:2]:
        producer.produce(TOPIC, send.value, partition=send.partition)
    arrived = proxy.hold(END_TXN)
    commit = threading.Thread(target=producer.commit_transaction, args=(30,))
    commit.start()
    assert arrived.wait(30), "no EndTxn came"
    commit.join(30)
    assert not commit.is_alive(), "the commit was not asked for again"
    producer.begin_transaction()
    producer.produce(TOPIC, sends[2].value, partition=0)
    producer.flush(30)
    proxy.release(END_TXN)
    assert proxy.answered.wait(30), "the late EndTxn was not answered"
    with suppress(KafkaException):  # where the late request did its work, the producer is over
        producer.produce(TOPIC, sends[3].value, partition=1)
        producer.flush(30)
        producer.abort_transaction(30)
    Producer({"bootstrap.servers": bootstrap, "transactional.id": "late"}).init_transactions(30)
    return check(History(sends, (), read_all(bootstrap, TOPIC, PARTITIONS, 30)))


def test_a_late_end_ends_nothing_of_a_client_that_speaks_v5(tmp_path: Path) -> None:
    with behind_a_proxy(tmp_path) as (proxy, bootstrap), JavaClients(tmp_path / "java.log") as clients:
        producer = clients.producer({"bootstrap.servers": bootstrap, "linger.ms": 0, **SHORT_TIMEOUT})
        assert violations(proxy, bootstrap, producer) == []
        assert 5 in spoken(proxy)


def test_a_broker_that_lets_it_is_caught(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", f"{MISTAKE}{os.pathsep}{os.environ.get('PYTHONPATH', '')}")
    with behind_a_proxy(tmp_path) as (proxy, bootstrap), JavaClients(tmp_path / "java.log") as clients:
        producer = clients.producer({"bootstrap.servers": bootstrap, "linger.ms": 0, **SHORT_TIMEOUT})
        assert {violation.kind for violation in violations(proxy, bootstrap, producer)} == {Kind.ABORTED, Kind.TORN}


def test_older_clients_get_kafkas_own_behaviour(tmp_path: Path) -> None:
    with behind_a_proxy(tmp_path) as (proxy, bootstrap):
        settings = {"socket.timeout.ms": 1000, "log_level": 0, "transactional.id": "late"}
        producer = Producer({"bootstrap.servers": bootstrap, **settings})
        assert {violation.kind for violation in violations(proxy, bootstrap, producer)} == {Kind.ABORTED, Kind.TORN}
        assert spoken(proxy) == {1}


def spoken(proxy: Holding) -> set[int]:
    """The versions of EndTxn that came, which are forgotten then."""
    versions = {version for key, version in proxy.seen if key == END_TXN}
    proxy.seen.clear()
    return versions


def test_the_guide_says_which_client_speaks_which_version(tmp_path: Path) -> None:
    """See docs/delivery-semantics.md; those of librdkafka and of Java's client are known from the tests above."""
    with behind_a_proxy(tmp_path) as (proxy, bootstrap):
        producer = KafkaProducer(bootstrap_servers=bootstrap, transactional_id="kafka-python")
        producer.init_transactions()
        producer.begin_transaction()
        producer.send(TOPIC, b"x")
        producer.commit_transaction()
        producer.close()
        assert spoken(proxy) == {3}

        async def send() -> None:
            settings = {"bootstrap_servers": bootstrap, "transactional_id": "aiokafka"}
            async with AIOKafkaProducer(**settings) as aio, aio.transaction():
                await aio.send_and_wait(TOPIC, b"x")

        asyncio.run(send())
        assert spoken(proxy) == {0}
