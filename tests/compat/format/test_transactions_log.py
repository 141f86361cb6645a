"""`__transaction_state` in Kafka's own records: its tools read every state that a transactional id can be in."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

from barnabas.storage.dump import DumpOptions, dump
from tests.support import java
from tests.support.brokers import Barnabas
from tests.support.group_scenarios import create

if TYPE_CHECKING:
    from pathlib import Path

STATES = ("Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort")


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What transactions leave behind that were committed, aborted and left open."""
    with Barnabas(tmp_path_factory.mktemp("broker"), {"transaction.state.log.num.partitions": "2"}) as broker:
        create(AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 0}), "orders", 2)
        for name in ("shop", "bank"):
            producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": name, "log_level": 0})
            producer.init_transactions(30)
            for number in range(5):
                producer.begin_transaction()
                producer.produce("orders", f"{number}", partition=number % 2)
                producer.flush(30)
                if number < 4:
                    (producer.abort_transaction if number % 2 else producer.commit_transaction)(30)
        assert broker.stop() == 0, broker.tail()
    return broker.data


@pytest.mark.parametrize("version", ["4.3.0", "3.9.1"])
def test_the_transaction_log_decoder_reads_every_record(directory: Path, version: str) -> None:
    logs = sorted(directory.glob("__transaction_state-*/*.log"))
    printed = java.tool(version, "dump-log", "--transaction-log-decoder", "--files", ",".join(map(str, logs)))
    assert set(re.findall(r"isvalid: (\w+)", printed)) == {"true"}
    records = [line for line in printed.splitlines() if line.startswith("| offset: ")]
    assert len(records) >= 2 * (1 + 4 * 3 + 1)
    for name in ("shop", "bank"):
        assert name in printed
    if version == "3.9.1":
        assert {f"state={state}" for state in STATES} <= set(re.findall(r"state=\w+", printed))
    else:
        options = DumpOptions(transaction_log_decoder=True)
        assert [line for log in logs for line in dump(log, options)] == printed.splitlines()
        assert {"0", "1", "2", "3", "4", "5"} <= set(re.findall(r'"transactionStatus":\s*(\d)', printed))
