"""Transactions while clients, coordinators and leaders are killed, and coordinator traffic comes late and twice.

Every broker is reached through a proxy, by clients and by other brokers: EndTxn, the notes of partitions, offsets of
transactions and markers are held back at random, some beyond the request timeout, and copies of some arrive seconds
later. The producers are Java's, whose transactions have epochs; for older clients nobody promises anything about
requests that arrive twice. What is read in the end has no torn, lost, aborted or repeated transaction.

Beside them a copier reads one topic and writes another, with its offsets in the same transactions, and is killed too.
"""

from __future__ import annotations

import json
import random
from contextlib import ExitStack
from typing import TYPE_CHECKING, Final

import pytest
from confluent_kafka import Producer

from barnabas.model.ids import java_hash
from tests.history.checker import Fate as Told
from tests.history.checker import check
from tests.history.clients import SAFE
from tests.history.faults import Stage
from tests.history.java_workload import REQUEST_TIMEOUT, JavaTransacting, Machines
from tests.history.workload import Workload, read_all
from tests.support import java
from tests.support.clusters import Cluster
from tests.support.holding import ADD_PARTITIONS, END_TXN, TXN_OFFSET_COMMIT, WRITE_MARKERS, Fate, Holding
from tests.support.processes import Process
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from tests.support.clusters import Node

TOPIC: Final = "history"
PARTITIONS: Final = 3
STATE: Final = "__transaction_state"
SETTINGS: Final = {"offsets.topic.num.partitions": "3", "transaction.state.log.num.partitions": "3"}
COPIED: Final = 300

pytestmark = pytest.mark.timeout(600)


class Tampered(Cluster):
    """Brokers that are reached through proxies with a mind of their own."""

    def __init__(self, folder: Path, seed: int) -> None:
        self._chance = random.Random(seed)
        self._stack = ExitStack()
        self.proxies = {number: self._stack.enter_context(Holding(self._judge)) for number in (1, 2, 3)}
        super().__init__(folder, 3, SETTINGS)

    def __exit__(self, *_: object) -> None:
        super().__exit__()
        self._stack.close()

    def start(self, broker_id: int, *, wait: bool = True, settings: Mapping[str, str] | None = None) -> Node:
        """Start a broker behind its proxy."""
        proxy = self.proxies[broker_id]
        proxy.target = int(self.address(broker_id).rpartition(":")[2])
        advertised = {"advertised.listeners": f"PLAINTEXT://127.0.0.1:{proxy.port}"}
        return super().start(broker_id, wait=wait, settings=advertised)

    def _judge(self, key: int, version: int) -> Fate:
        draw = self._chance.random()
        if key not in (ADD_PARTITIONS, END_TXN, WRITE_MARKERS, TXN_OFFSET_COMMIT) or draw > 0.12:
            return Fate()
        if draw > 0.03:
            return Fate(repeated=self._chance.uniform(0, 3))
        return Fate(held=self._chance.choice((0.1, 0.5, 2 * REQUEST_TIMEOUT)))


class Copier(Process):
    """Kafka's own: reads a partition, writes to a topic and commits offsets, all in transactions, and aborts some."""

    def __init__(self, bootstrap: str, log: Path) -> None:
        main = java.TOOLS["transactional-message-copier"]
        words = java.command("4.3.0", main, "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
        words += ["--broker-list", bootstrap, "--input-topic", "source", "--input-partition", "0"]
        words += ["--output-topic", "copy", "--transactional-id", "copier", "--consumer-group", "copiers"]
        words += ["--transaction-size", "10", "--enable-random-aborts", "--use-group-metadata"]
        words += ["--transaction-timeout", "10000"]  # one that was killed leaves offsets open, which the next waits for
        super().__init__("copier", words, log)

    def consumed(self) -> int:
        """How many records it has copied in this life."""
        lines = [line for line in self.output().splitlines() if line.startswith("{")]
        return int(json.loads(lines[-1])["consumed"]) if lines else 0


def fill(bootstrap: str) -> list[str]:
    """What there is to copy."""
    values = [f"{number}" for number in range(COPIED)]
    producer = Producer({"bootstrap.servers": bootstrap, **SAFE})
    for value in values:
        producer.produce("source", value, partition=0)
    assert producer.flush(60) == 0
    return values


def test_no_transaction_is_torn_lost_read_after_an_abort_or_repeated(tmp_path: Path) -> None:
    with Tampered(tmp_path, seed=7) as cluster, Machines(tmp_path / "java.log") as machines:
        for topic, partitions in ((TOPIC, PARTITIONS), ("source", 1), ("copy", 1)):
            cluster.create(topic, partitions, 3, min_insync_replicas="2")
        bootstrap = cluster.bootstrap
        values = fill(bootstrap)
        stage = Stage(cluster, TOPIC)
        producers = [JavaTransacting(machines, name, bootstrap, TOPIC, PARTITIONS) for name in ("a", "b")]
        workload = Workload(bootstrap, TOPIC, PARTITIONS, producers=0, members=0, others=producers)
        proxies = list(cluster.proxies.values())
        with workload, ExitStack() as stack:

            def go_on(count: int = 40) -> None:
                wanted = {each.name: each.acknowledged + count for each in producers}

                def done() -> bool:
                    for each in producers:
                        each.check()
                    return all(each.acknowledged >= wanted[each.name] for each in producers)

                wait_until(done, f"{count} more records of each producer", 180)

            def kill_broker(broker: int) -> None:
                cluster.nodes[broker].kill()
                go_on()
                cluster.start(broker)
                stage.settle(PARTITIONS)

            def copy(count: int) -> Copier:
                copier = stack.enter_context(Copier(bootstrap, tmp_path / "copier.log"))
                wait_until(lambda: copier.consumed() >= count or not copier.alive, "records to be copied", 180)
                return copier

            go_on()
            copy(40).kill()
            kill_broker(cluster.leader(STATE, java_hash("a") % 3))
            machines.kill()
            go_on()
            copier = copy(40)
            kill_broker(cluster.leader(TOPIC, 0))
            copier.kill()
            go_on()
            wait_until(lambda: copy(COPIED).wait(180) == 0, "the copier to reach the end", 180)

            def is_disturbed() -> bool:
                """Chance may let all of one kind pass for a while."""
                happened = [proxy.held for proxy in proxies], [proxy.repeated for proxy in proxies]
                return all(any(each[key] for each in some) for some in happened for key in (END_TXN, WRITE_MARKERS))

            wait_until(is_disturbed, "ends and markers to be held back and repeated", 180)
            history = workload.finish()
        copied = read_all(bootstrap, "copy", 1, 60)
    assert check(history) == []
    assert all("the JVM is gone" in reason for reason in workload.fatal), workload.fatal
    told = [send.fate for send in history.sends]
    assert min(told.count(Told.ACKNOWLEDGED), told.count(Told.REFUSED)) > 50
    assert [record.value for record in copied] == values
    for happened in ([proxy.held for proxy in proxies], [proxy.repeated for proxy in proxies]):
        assert {END_TXN, WRITE_MARKERS} <= set().union(*happened)
