"""The broker is killed -9 and stopped, again and again, in the middle of transactions: a bank keeps its money.

Tellers move money between accounts: each transfer is a transaction with a withdrawal in one topic and a deposit in
another, and some are aborted. Whatever the broker goes through, a reader of committed records finds both halves of a
transfer or none, each transfer that was acknowledged once, and none that was aborted.
"""

from __future__ import annotations

import threading
from collections import Counter
from typing import TYPE_CHECKING, Final

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from tests.support.brokers import Barnabas
from tests.support.group_scenarios import create
from tests.support.processes import free_port
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from pathlib import Path

ENDINGS: Final = ("kill", "stop", "kill", "kill")
TELLERS: Final = 2
TOPICS: Final = ("withdrawals", "deposits")
PER_LIFE: Final = 15
"""Transfers that each teller makes before the broker's next end, at least."""
SETTINGS: Final = {"transaction.state.log.num.partitions": "2"}


class Teller(threading.Thread):
    """Makes transfers until it is told to stop; after a failure it begins anew under its transactional id."""

    def __init__(self, bootstrap: str, name: str) -> None:
        super().__init__(name=name, daemon=True)
        self._address = bootstrap
        self.committed: list[str] = []
        self.aborted: list[str] = []
        self.unknown: list[str] = []
        """Transfers whose end was not heard of."""
        self.closing = threading.Event()

    def work(self, count: int) -> None:
        """Wait until it has made so many transfers more."""
        wanted = len(self.committed) + count
        wait_until(lambda: len(self.committed) >= wanted, f"transfers of {self.name}", 60)

    def run(self) -> None:
        number = 0
        while not self.closing.is_set():
            producer = Producer(
                {
                    "bootstrap.servers": self._address,
                    "transactional.id": self.name,
                    "transaction.timeout.ms": 20_000,
                    "log_level": 0,
                }
            )
            transfer = ""
            try:
                producer.init_transactions(20)
                while not self.closing.is_set():
                    number += 1
                    transfer = f"{self.name}-{number}"
                    producer.begin_transaction()
                    for topic in TOPICS:
                        producer.produce(topic, transfer)
                    if number % 4 == 0:
                        producer.abort_transaction(20)
                        self.aborted.append(transfer)
                    else:
                        producer.commit_transaction(20)
                        self.committed.append(transfer)
                    transfer = ""
            except (KafkaException, BufferError):
                if transfer:
                    self.unknown.append(transfer)


def ledger(bootstrap: str, topic: str) -> list[str]:
    """All committed records of a topic."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "auditor",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "log_level": 0,
        }
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    found: list[str] = []
    while True:
        message = consumer.poll(30)
        assert message is not None, f"{topic} has no end after {len(found)} records"
        error = message.error()
        if error is None:
            found.append((message.value() or b"").decode())
        elif error.code() == KafkaError._PARTITION_EOF:
            break
    consumer.close()
    return found


def test_no_transfer_is_torn_lost_repeated_or_made_of_nothing(tmp_path: Path) -> None:
    port = free_port()
    bootstrap = f"127.0.0.1:{port}"
    tellers = [Teller(bootstrap, f"teller-{number}") for number in range(TELLERS)]
    broker = Barnabas(tmp_path, SETTINGS, port)
    try:
        admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
        for topic in TOPICS:
            create(admin, topic, 1)
        for teller in tellers:
            teller.start()
        for ending in ENDINGS:
            for teller in tellers:
                teller.work(PER_LIFE)
            if ending == "kill":
                broker.kill()
            else:
                assert broker.stop() == 0, broker.tail()
            broker = Barnabas(tmp_path, SETTINGS, port)
        for teller in tellers:
            teller.closing.set()
        for teller in tellers:
            teller.join(90)
            assert not teller.is_alive()
            Producer({"bootstrap.servers": bootstrap, "transactional.id": teller.name}).init_transactions(30)
        withdrawals, deposits = (ledger(bootstrap, topic) for topic in TOPICS)
        assert broker.stop() == 0, broker.tail()
    finally:
        for teller in tellers:
            teller.closing.set()
        broker.kill()
    assert Counter(withdrawals) == Counter(deposits), "torn"
    assert max(Counter(deposits).values()) == 1, "repeated"
    committed = {transfer for teller in tellers for transfer in teller.committed}
    aborted = {transfer for teller in tellers for transfer in teller.aborted}
    unknown = {transfer for teller in tellers for transfer in teller.unknown}
    assert committed <= set(deposits), "lost"
    assert not aborted & set(deposits), "aborted, and read"
    assert set(deposits) <= committed | unknown, "made of nothing"
