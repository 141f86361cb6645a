"""What a broker knows of transactions after it was killed: open ones, their offsets, and ids that nobody uses."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from kio.schema.errors import ErrorCode

from tests.support.brokers import Barnabas
from tests.support.group_scenarios import create
from tests.support.processes import free_port
from tests.support.waiting import wait_until
from tests.support.wire import Connection

if TYPE_CHECKING:
    from pathlib import Path

LIST_OFFSETS: Final = 2
OFFSET_FETCH: Final = 9
LIST_TRANSACTIONS: Final = 66
LATEST: Final = -1
READ_UNCOMMITTED, READ_COMMITTED = 0, 1
UNSTABLE: Final = 88
QUICK: Final = {
    "transactional.id.expiration.ms": "1000",
    "transaction.remove.expired.transaction.cleanup.interval.ms": "200",
    "transaction.max.timeout.ms": "60000",
}


def producer_of(bootstrap: str, name: str, **settings: Any) -> Producer:
    """A producer that has registered."""
    common = {"bootstrap.servers": bootstrap, "reconnect.backoff.max.ms": 200, "log_level": 0}
    producer = Producer({**common, "transactional.id": name, **settings})
    producer.init_transactions(30)
    return producer


def one_that_has_committed(bootstrap: str, name: str) -> Producer:
    """A producer that has sent a record in a transaction.

    The id of one that a busy machine holds up between its registration and its record is forgotten before that.
    """

    def committed() -> Producer | None:
        producer = producer_of(bootstrap, name)
        producer.begin_transaction()
        producer.produce("t", "committed")
        try:
            producer.commit_transaction(30)
        except KafkaException:
            return None
        return producer

    return wait_until(committed, f"a transaction of {name}")


def ends(bootstrap: str, topic: str) -> tuple[int, int]:
    """Where readers of everything, and those of committed records, come to an end."""
    found = []
    with Connection(bootstrap) as connection:
        for isolation in (READ_UNCOMMITTED, READ_COMMITTED):
            partition = {"partition_index": 0, "current_leader_epoch": -1, "timestamp": LATEST}
            topics = [{"name": topic, "partitions": [partition]}]
            values = {"replica_id": -1, "isolation_level": isolation, "topics": topics}
            response = connection.ask(LIST_OFFSETS, 7, values)
            found.append(response.topics[0].partitions[0].offset)
    return found[0], found[1]


def committed(bootstrap: str, topic: str, *, stable: bool) -> tuple[int, int]:
    """The offset of group g and the error that is told with it."""
    with Connection(bootstrap) as connection:
        group = {"group_id": "g", "topics": [{"name": topic, "partition_indexes": [0]}]}
        response = connection.ask(OFFSET_FETCH, 8, {"groups": [group], "require_stable": stable})
    partition = response.groups[0].topics[0].partitions[0]
    return partition.committed_offset, partition.error_code


def loaded(bootstrap: str, topic: str) -> bool:
    """Whether the group's coordinator answers again."""
    with Connection(bootstrap) as connection:
        group = {"group_id": "g", "topics": [{"name": topic, "partition_indexes": [0]}]}
        return bool(connection.ask(OFFSET_FETCH, 8, {"groups": [group]}).groups[0].error_code == 0)


@pytest.mark.parametrize("commits", [True, False])
def test_an_open_transaction_is_open_after_a_kill_with_its_records_and_its_offsets(
    tmp_path: Path, commits: bool
) -> None:
    port = free_port()
    bootstrap = f"127.0.0.1:{port}"
    with Barnabas(tmp_path, port=port) as broker:
        create(AdminClient({"bootstrap.servers": bootstrap, "log_level": 0}), "t", 1)
        producer = producer_of(bootstrap, "p")
        producer.begin_transaction()
        producer.produce("t", "first")
        consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "g", "log_level": 0})
        producer.send_offsets_to_transaction([TopicPartition("t", 0, 7)], consumer.consumer_group_metadata(), 30)
        producer.flush(30)
        assert ends(bootstrap, "t") == (1, 0)
        broker.kill()
    with Barnabas(tmp_path, port=port):
        wait_until(lambda: loaded(bootstrap, "t"), "the group's coordinator")
        assert ends(bootstrap, "t") == (1, 0)
        assert committed(bootstrap, "t", stable=False) == (-1, 0)
        assert committed(bootstrap, "t", stable=True) == (-1, UNSTABLE)
        producer.produce("t", "second")
        producer.flush(30)
        (producer.commit_transaction if commits else producer.abort_transaction)(30)
        wait_until(lambda: ends(bootstrap, "t") == (3, 3), "the marker")
        offset = 7 if commits else -1
        wait_until(lambda: committed(bootstrap, "t", stable=True) == (offset, 0), "the marker among the offsets")
        consumer.close()


def test_ids_that_nobody_uses_are_forgotten_and_too_long_timeouts_refused(tmp_path: Path) -> None:
    with Barnabas(tmp_path, QUICK) as broker:
        bootstrap = broker.bootstrap
        create(AdminClient({"bootstrap.servers": bootstrap, "log_level": 0}), "t", 1)
        idle = one_that_has_committed(bootstrap, "idle")

        def known() -> list[str]:
            with Connection(bootstrap) as connection:
                response = connection.ask(LIST_TRANSACTIONS, 0, {"state_filters": [], "producer_id_filters": []})
            if response.error_code is not ErrorCode.none:  # some of the coordinators are still loading
                return [response.error_code.name]
            return [each.transactional_id for each in response.transaction_states]

        wait_until(lambda: not known(), "the id to be forgotten")
        idle.begin_transaction()
        idle.produce("t", "too late")
        with pytest.raises(KafkaException):
            idle.commit_transaction(30)
        one_that_has_committed(bootstrap, "idle")
        wait_until(lambda: ends(bootstrap, "t") == (4, 4), "two committed transactions")
        with pytest.raises(KafkaException) as caught:
            producer_of(bootstrap, "slow", **{"transaction.timeout.ms": 60_001})
        assert caught.value.args[0].code() == KafkaError.INVALID_TRANSACTION_TIMEOUT
