"""A data directory and a metadata file of an earlier tree are read by this one, and gone on with."""

from __future__ import annotations

from typing import TYPE_CHECKING

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType

from tests.support.brokers import Barnabas
from tests.support.earlier import KEEPING, committed, unpack
from tests.support.markers import wait_for_markers

if TYPE_CHECKING:
    from pathlib import Path


def test_topics_groups_and_transactions_of_an_earlier_tree_are_read(tmp_path: Path) -> None:
    known = unpack(tmp_path)
    for turn in range(2):
        broker = Barnabas(tmp_path, KEEPING)
        try:
            admin = AdminClient({"bootstrap.servers": broker.bootstrap})
            assert set(admin.list_topics(timeout=30).topics) == {
                *("orders", "settings", "payments", "copies"),
                *("__consumer_offsets", "__transaction_state"),
            }
            for partition, values in enumerate(known["orders"]):
                assert [value for _, value in committed(broker.bootstrap, "orders", partition)][:50] == values
            assert dict(committed(broker.bootstrap, "settings")) | {"key0": None} == known["settings"] | {"key0": None}
            assert [value for _, value in committed(broker.bootstrap, "payments")] == known["payments"]
            assert len(committed(broker.bootstrap, "copies")) == 100
            for group, offset in known["committed"].items():
                consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": group})
                assert consumer.committed([TopicPartition("orders", 1)], 30)[0].offset == offset
                consumer.close()
            asked = ConfigResource(ResourceType.TOPIC, "orders")
            assert admin.describe_configs([asked])[asked].result(30)["retention.ms"].value == "-1"
            # The transactional id of before is known, and a new record gets the next offset.
            assert append(broker, f"{turn}") == 50 + 2 * turn  # the marker of the transaction before has an offset, too
            known["payments"].append(str(turn))
        finally:
            broker.stop()


def append(broker: Barnabas, value: str) -> int | None:
    """Write with the transactional id of before to two topics, and return the offset in `orders`."""
    producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": "cashier"})
    producer.init_transactions(30)
    producer.begin_transaction()
    offsets: list[int | None] = []
    producer.produce("orders", value, partition=0, on_delivery=lambda _, message: offsets.append(message.offset()))
    producer.produce("payments", value)
    producer.commit_transaction(30)
    wait_for_markers(broker.bootstrap, "payments")
    return offsets[0]
