"""Thin Python clients over confluent-kafka (librdkafka): `Producer`, `Consumer`, `Queue`, `Admin`, and twins
for asyncio.

    producer/   records in, futures out             aio/             the same with `await`
    consumer/   topics as an iterator               semantics.py     how often a record is processed
    queue/      a topic as a work queue             serializers.py   keys and values as bytes
    admin/      what can be asked of a cluster      partitioners.py  which partition a record goes to
    wire/       Kafka's protocol spoken directly

Names are loaded when they are first asked for: what only administers does not wait for the rest.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from barnabas.clients.admin.admin import Admin
    from barnabas.clients.admin.topics import NewTopic
    from barnabas.clients.aio import AsyncAdmin, AsyncConsumer, AsyncDelivery, AsyncProducer, AsyncQueue
    from barnabas.clients.consumer.consumer import Consumer
    from barnabas.clients.producer.delivery import Delivery
    from barnabas.clients.producer.producer import Producer
    from barnabas.clients.queue.dead_letter import DeadLetter
    from barnabas.clients.queue.message import QueueMessage
    from barnabas.clients.queue.queue import Queue
    from barnabas.clients.records import ConsumerRecord, RecordMetadata, TopicPartition
    from barnabas.clients.semantics import at_least_once, at_most_once, stored_with_result
    from barnabas.clients.serializers import BYTES, JSON, STRING, Avro, Protobuf

__all__ = [
    "BYTES",
    "JSON",
    "STRING",
    "Admin",
    "AsyncAdmin",
    "AsyncConsumer",
    "AsyncDelivery",
    "AsyncProducer",
    "AsyncQueue",
    "Avro",
    "Consumer",
    "ConsumerRecord",
    "DeadLetter",
    "Delivery",
    "NewTopic",
    "Producer",
    "Protobuf",
    "Queue",
    "QueueMessage",
    "RecordMetadata",
    "TopicPartition",
    "at_least_once",
    "at_most_once",
    "stored_with_result",
]

_MODULES = {
    "admin": ("Admin", "NewTopic"),
    "aio": ("AsyncAdmin", "AsyncConsumer", "AsyncDelivery", "AsyncProducer", "AsyncQueue"),
    "consumer": ("Consumer",),
    "producer.delivery": ("Delivery",),
    "producer": ("Producer",),
    "queue": ("Queue",),
    "queue.dead_letter": ("DeadLetter",),
    "queue.message": ("QueueMessage",),
    "records": ("ConsumerRecord", "RecordMetadata", "TopicPartition"),
    "semantics": ("at_least_once", "at_most_once", "stored_with_result"),
    "serializers": ("BYTES", "JSON", "STRING", "Avro", "Protobuf"),
}
_HOMES = {name: module for module, names in _MODULES.items() for name in names}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return __all__
