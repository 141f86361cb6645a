"""`barnabas transactions` and `barnabas cluster`, beside Kafka's own tools."""

from __future__ import annotations

import json
import uuid
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient

from tests.compat.java.test_hanging import PRODUCER_ID, hang
from tests.support import java
from tests.support.brokers import Barnabas
from tests.support.group_scenarios import create

if TYPE_CHECKING:
    from collections.abc import Iterator
    from subprocess import CompletedProcess

    from tests.compat.cli.conftest import Cli


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Barnabas]:
    """One that verifies nothing, so that transactions can hang; its topic `t` has one that does."""
    settings = {"transaction.partition.verification.enable": "false", "broker.rack": "r1"}
    with Barnabas(tmp_path_factory.mktemp("broker"), settings) as started:
        admin = AdminClient({"bootstrap.servers": started.bootstrap})
        create(admin, "t", 1)
        create(admin, "u", 2)
        hang(started.bootstrap, "t")
        yield started


class Tools:
    """The command, and Kafka's tool."""

    def __init__(self, cli: Cli, broker: Barnabas) -> None:
        self._cli = cli
        self._bootstrap = broker.bootstrap

    def run(self, *words: str) -> CompletedProcess[str]:
        return self._cli("transactions", "--bootstrap-server", self._bootstrap, *words)

    def done(self, *words: str) -> str:
        done = self.run(*words)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def theirs(self, *words: str) -> str:
        return java.tool("4.3.0", "transactions", "--bootstrap-server", self._bootstrap, *words)


@pytest.fixture
def tools(cli: Cli, broker: Barnabas) -> Tools:
    return Tools(cli, broker)


@pytest.fixture
def producer(broker: Barnabas) -> Producer:
    """One with an open transaction on the first partition of `u`; its transactional id is `known`."""
    made = Producer(
        {
            "bootstrap.servers": broker.bootstrap,
            "transactional.id": "known",
            "transaction.timeout.ms": 600_000,
            "log_level": 0,
        }
    )
    made.init_transactions(30)
    made.begin_transaction()
    made.produce("u", "open", partition=0)
    assert made.flush(30) == 0
    return made


def test_an_open_transaction_is_shown_and_ended(tools: Tools, producer: Producer) -> None:
    assert tools.done("list") == tools.theirs("list")
    (listed,) = json.loads(tools.done("list", "--json"))
    assert (listed["transactionalId"], listed["coordinator"], listed["transactionState"]) == ("known", 1, "Ongoing")
    assert json.loads(tools.done("list", "--json", "--transactional-id-pattern", "un.*")) == []
    assert json.loads(tools.done("list", "--json", "--duration-filter", "3600000")) == []

    described = tools.done("describe", "--transactional-id", "known").splitlines()
    theirs = tools.theirs("describe", "--transactional-id", "known").splitlines()
    assert described[0] == theirs[0]
    changing = described[0].split().index("TransactionDurationMs")
    mine, real = (lines[1].split() for lines in (described, theirs))
    assert mine[:changing] + mine[changing + 1 :] == real[:changing] + real[changing + 1 :]
    assert mine[-1] == "u-0"

    words = ("describe-producers", "--topic", "u", "--partition", "0")
    assert tools.done(*words) == tools.theirs(*words)
    (active,) = json.loads(tools.done(*words, "--broker-id", "1", "--json"))
    assert (active["producerId"], active["currentTransactionStartOffset"]) == (listed["producerId"], 0)

    hanging = tools.run("find-hanging", "--topic", "u", "--max-transaction-timeout", "0", "--json")
    assert (json.loads(hanging.stdout), hanging.stderr) == ([], "")
    told = tools.done("forceTerminateTransaction", "--transactionalId", "known")
    assert told == "Aborted what was open under known; its producer is fenced.\n"
    with pytest.raises(KafkaException) as caught:
        producer.commit_transaction(30)
    assert caught.value.args[0].fatal()


def test_a_hanging_transaction_is_found_and_ended(tools: Tools) -> None:
    found = tools.done("find-hanging", "--broker-id", "1")
    assert found == tools.theirs("find-hanging", "--broker-id", "1")
    assert found.splitlines()[1].split()[:6] == ["t", "0", str(PRODUCER_ID), "3", "-1", "0"]
    place = ("--topic", "t", "--partition", "0")
    elsewhere = tools.run("abort", *place, "--start-offset", "5")
    assert elsewhere.returncode == 1
    assert "Could not find any open transactions starting at offset 5 on partition t-0." in elsewhere.stderr
    ended = tools.done("abort", *place, "--start-offset", "0")
    assert ended == f"Aborted the transaction of producer {PRODUCER_ID} (epoch 3) on t-0.\n"
    assert json.loads(tools.done("find-hanging", *place, "--json")) == []
    (remembered,) = json.loads(tools.done("describe-producers", *place, "--json"))
    assert remembered["currentTransactionStartOffset"] is None


@pytest.mark.parametrize(
    ("line", "code", "complaint"),
    [
        ("describe --transactional-id {}", 1, "No coordinator knows {}. `barnabas transactions list` shows"),
        ("forceTerminateTransaction --transactionalId {}", 1, "No coordinator knows {}"),
        ("describe-producers --topic {} --partition 0", 1, "there is no partition {}-0, or it has no leader"),
        (
            "describe-producers --topic u --partition 0 --broker-id 9",
            1,
            "There is no broker 9. The brokers that are up: 1",
        ),
        ("find-hanging --topic {}", 1, "There is no {}."),
        ("find-hanging", 2, "Say where to look: --broker-id ID, --topic TOPIC, or both."),
        ("find-hanging --broker-id 1 --partition 0", 2, "--partition needs --topic."),
        ("abort --topic u --partition 0", 2, "Give --start-offset, or --producer-id,"),
        ("abort --topic u --partition 0 --start-offset 0 --producer-id 1", 2, "Give --start-offset, or --producer-id,"),
    ],
)
def test_what_cannot_be_done_is_told(tools: Tools, line: str, code: int, complaint: str) -> None:
    name = f"x{uuid.uuid4().hex[:8]}"
    refused = tools.run(*line.format(name).split())
    assert refused.returncode == code
    assert complaint.format(name) in refused.stderr


def test_a_cluster_and_its_brokers(cli: Cli, broker: Barnabas) -> None:
    mine = cli("cluster", "list-endpoints", "--bootstrap-server", broker.bootstrap)
    assert (mine.returncode, mine.stderr) == (0, "")
    assert mine.stdout == java.tool("4.3.0", "cluster", "list-endpoints", "--bootstrap-server", broker.bootstrap)
    told = json.loads(cli("cluster", "list-endpoints", "--bootstrap-server", broker.bootstrap, "--json").stdout)
    assert told["brokers"] == [{"id": 1, "host": "127.0.0.1", "port": broker.port, "rack": "r1", "state": "unfenced"}]
    assert told["controllerId"] == 1
    shown = cli("cluster", "cluster-id", "--bootstrap-server", broker.bootstrap).stdout
    assert shown == f"Cluster ID: {told['clusterId']}\n"
    assert len(told["clusterId"]) == 22
