"""Barnabas: a message broker in Python that every Kafka client uses unmodified.

The clients are here too, and are loaded when they are first asked for: `from barnabas import Producer, Consumer,
Queue, Admin` and their twins for asyncio, `AsyncProducer`, `AsyncConsumer`, `AsyncQueue`, `AsyncAdmin`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

__version__ = "0.1.0"

if TYPE_CHECKING:
    from barnabas.clients import (
        Admin,
        AsyncAdmin,
        AsyncConsumer,
        AsyncProducer,
        AsyncQueue,
        Consumer,
        ConsumerRecord,
        Producer,
        Queue,
        QueueMessage,
        RecordMetadata,
        TopicPartition,
    )

__all__ = [
    "Admin",
    "AsyncAdmin",
    "AsyncConsumer",
    "AsyncProducer",
    "AsyncQueue",
    "Consumer",
    "ConsumerRecord",
    "Producer",
    "Queue",
    "QueueMessage",
    "RecordMetadata",
    "TopicPartition",
    "__version__",
]


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module 'barnabas' has no attribute {name!r}")
    from barnabas import clients

    return getattr(clients, name)


def __dir__() -> list[str]:
    return __all__
