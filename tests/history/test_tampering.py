"""What tampering says is wrong with a disk or a clock is wrong: anybody survives faults that do nothing."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import OffsetSpec

from tests.history.faults import DRAG
from tests.history.tampering import Tampered

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

HOURS = 3600


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Tampered]:
    with Tampered(tmp_path, 2) as found:
        yield found


def test_a_disk_is_slow_then_a_clock_is_wrong_then_a_disk_is_full(cluster: Tampered) -> None:
    cluster.create("t", 1, 2, message_timestamp_type="LogAppendTime")
    leader = cluster.leader("t")

    def sent() -> float:
        began = time.monotonic()
        producer = Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all", "linger.ms": 0})
        producer.produce("t", b"x", partition=0)
        assert producer.flush(60) == 0
        return time.monotonic() - began

    def ahead() -> float:
        place = TopicPartition("t", 0)
        found = cluster.admin.list_offsets({place: OffsetSpec.max_timestamp()}, request_timeout=30)[place].result(60)
        return float(found.timestamp) / 1000 - time.time()

    sent()
    cluster.tamper(leader, "delay", DRAG)
    assert sent() >= DRAG
    cluster.tamper(leader, "delay", 0)
    assert ahead() < HOURS
    cluster.tamper(leader, "clock", 20 * HOURS)
    sent()
    assert ahead() > 19 * HOURS
    cluster.tamper(leader, "full", 1)
    sent()
    assert cluster.leader("t", other_than=leader) != leader
    assert "No space left" in cluster.nodes[leader].output()
