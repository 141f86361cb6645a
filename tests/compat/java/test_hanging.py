"""kafka-transactions finds a transaction that no coordinator knows and ends it, and one that a coordinator does know.

A hanging transaction takes a broker that verifies nothing, and a client that tells no coordinator what it writes: here
both are made for it. Readers of committed records wait before it until somebody ends it by hand.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient

from tests.compat.java.test_transactions import read
from tests.support import java, wire
from tests.support.brokers import Barnabas
from tests.support.group_scenarios import create

if TYPE_CHECKING:
    from pathlib import Path

TRANSACTIONAL = 1 << 4
PRODUCE = 0
PRODUCER_ID = 4711


def hang(bootstrap: str, topic: str) -> None:
    """Write a batch of a transaction that nobody has begun, an hour ago."""
    an_hour_ago = int(time.time() * 1000) - 3_600_000
    batch = wire.batch(
        [b"hanging"],
        timestamp=an_hour_ago,
        attributes=TRANSACTIONAL,
        producer_id=PRODUCER_ID,
        producer_epoch=3,
        base_sequence=0,
    )
    values = {
        "transactional_id": "nobody",
        "acks": -1,
        "timeout": 10_000,
        "topic_data": [{"name": topic, "partition_data": [{"index": 0, "records": batch}]}],
    }
    with wire.Connection(bootstrap) as connection:
        response = connection.ask(PRODUCE, 10, values)
    assert response.responses[0].partition_responses[0].error_code == 0


def test_hanging_transactions_are_found_and_ended(tmp_path: Path) -> None:
    with Barnabas(tmp_path, {"transaction.partition.verification.enable": "false"}) as broker:
        create(AdminClient({"bootstrap.servers": broker.bootstrap}), "t", 1)
        hang(broker.bootstrap, "t")
        plain = Producer({"bootstrap.servers": broker.bootstrap, "log_level": 0})
        plain.produce("t", "plain")
        assert plain.flush(30) == 0
        read(broker.bootstrap, "t", 0)

        def tool(*words: str) -> str:
            return java.tool("4.3.0", "transactions", "--bootstrap-server", broker.bootstrap, *words)

        found = tool("find-hanging", "--broker-id", "1").splitlines()
        assert [line.split()[:6] for line in found if line.startswith("t ")] == [
            ["t", "0", str(PRODUCER_ID), "3", "-1", "0"]
        ]
        tool("abort", "--topic", "t", "--partition", "0", "--start-offset", "0")
        assert read(broker.bootstrap, "t", 1) == ["plain"]
        producers = tool("describe-producers", "--topic", "t", "--partition", "0").splitlines()
        assert [line.split()[-1] for line in producers if line.startswith(str(PRODUCER_ID))] == ["None"], "it is open"

        known = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": "known", "log_level": 0})
        known.init_transactions(30)
        known.begin_transaction()
        known.produce("t", "open")
        known.flush(30)
        tool("forceTerminateTransaction", "--transactionalId", "known")
        with pytest.raises(KafkaException) as caught:
            known.commit_transaction(30)
        assert caught.value.args[0].fatal()
        assert read(broker.bootstrap, "t", 1) == ["plain"]
