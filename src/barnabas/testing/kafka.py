"""What a test needs of Kafka: names of its own, topics, clients, and a look at what is in a topic.

The fixtures `kafka` and `kafka_cluster` are such. Everything they make is gone when the test ends: clients are closed,
and topics whose names begin with the test's own prefix are deleted, whoever made them.
"""

from __future__ import annotations

import json
import re
import time
import uuid
from abc import ABC, abstractmethod
from contextlib import ExitStack
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Final, Self

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

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
        RecordMetadata,
    )
    from barnabas.clients.consumer.subscribing import Topics
    from barnabas.testing.broker import Broker
    from barnabas.testing.cluster import Cluster, ClusterFaults
    from barnabas.testing.faults import BrokerFaults, Faults

CLOSE_SECONDS: Final = 5.0
"""How long a producer may still deliver when the test is over."""
LONGEST_NAME: Final = 80
DEAD_LETTERS: Final = "dlq."
"""How the names of topics for dead letters begin, unless a broker is told otherwise."""
MOST_DELETIONS: Final = 3
"""A client that is still open may ask for a topic again and again."""


class KafkaForTest(ABC):
    """Brokers as one test uses them."""

    copies: ClassVar[int | None] = None
    """How many replicas the test's topics have; None: as many as the brokers are set to give."""

    def __init__(self, brokers: Broker | Cluster, test: str) -> None:
        """`test` is the name that topics and groups begin with; something random makes it unique."""
        self._brokers = brokers
        self.prefix = f"{re.sub(r'[^a-zA-Z0-9_-]+', '-', test)[:LONGEST_NAME].strip('-')}.{uuid.uuid4().hex[:6]}"
        """What all names of this test begin with."""
        self._topics = 0
        self._opened = ExitStack()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def bootstrap_servers(self) -> str:
        """What clients are given, whichever they are."""
        return self._brokers.bootstrap_servers

    @property
    def client_config(self) -> dict[str, object]:
        """The properties that clients need besides; empty unless the brokers want TLS or SASL."""
        return dict(self._brokers.client_config)

    def _with_client_config(self, options: dict[str, Any]) -> dict[str, Any]:
        return {**options, "config": {**self.client_config, **(options.get("config") or {})}}

    @property
    @abstractmethod
    def faults(self) -> Faults:
        """What can go wrong."""

    def name(self, what: str) -> str:
        """A name that only this test has, for a topic, a group or anything else; the same for the same `what`."""
        return f"{self.prefix}.{what}"

    def topic(
        self,
        what: str | None = None,
        *,
        partitions: int = 1,
        replication_factor: int | None = None,
        configs: Mapping[str, object] | None = None,
    ) -> str:
        """Make a topic, and return its name: `name(what)`, or one of its own."""
        self._topics += 1
        made = self.name(what or f"topic-{self._topics}")
        texts = {
            key: str(value).lower() if isinstance(value, bool) else str(value) for key, value in (configs or {}).items()
        }
        self._own_admin.create_topic(made, partitions, replication_factor or self.copies, configs=texts)
        return made

    # Clients

    @cached_property
    def admin(self) -> Admin:
        """An admin client."""
        from barnabas.clients import Admin

        return self._opened.enter_context(Admin(self.bootstrap_servers, config=self.client_config))

    def producer(self, **options: Any) -> Producer[Any, Any]:
        """A producer, with the options of `barnabas.Producer`. It is closed at the test's end, or before."""
        from barnabas.clients import Producer

        producer: Producer[Any, Any] = Producer(self.bootstrap_servers, **self._with_client_config(options))
        self._opened.callback(producer.close, CLOSE_SECONDS)
        return producer

    def consumer(self, topics: Topics | None = None, **options: Any) -> Consumer[Any, Any]:
        """A consumer, with the options of `barnabas.Consumer`; it begins with the first record unless told otherwise.

        It is closed at the test's end, or before.
        """
        from barnabas.clients import Consumer

        options.setdefault("auto_offset_reset", "earliest")
        consumer: Consumer[Any, Any] = Consumer(self.bootstrap_servers, topics, **self._with_client_config(options))
        self._opened.callback(consumer.close)
        return consumer

    def queue(self, topic: str, group: str | None = None, **options: Any) -> Queue[Any, Any]:
        """A queue, with the options of `barnabas.Queue`; its group is `name("workers")` unless told otherwise.

        It is closed at the test's end, or before.
        """
        from barnabas.clients import Queue

        queue: Queue[Any, Any] = Queue(
            self.bootstrap_servers, topic, group or self.name("workers"), **self._with_client_config(options)
        )
        self._opened.callback(queue.close, CLOSE_SECONDS)
        return queue

    def configure_group(self, group: str, configs: Mapping[str, object]) -> None:
        """Set configs of a group, which need not exist yet.

        `{"share.record.lock.duration.ms": 1000}` lets locks of a queue end soon, and `{"share.delivery.count.limit":
        2}` gives a message up after two deliveries.
        """
        from barnabas.clients.admin.cluster_admin import ClusterAdmin
        from barnabas.clients.admin.configs import EntityType

        texts = {key: str(value) for key, value in configs.items()}
        security = {key: str(value) for key, value in self.client_config.items()}
        with ClusterAdmin(self.bootstrap_servers, security) as cluster:
            cluster.configs.alter(EntityType.GROUPS, group, add=texts, delete=())

    def dead_letter_topic(self, group: str, *, copies: bool = True) -> str:
        """Make a topic for the dead letters of a group, let the group have it, and return its name.

        What `records` finds there says which messages the group has given up: `DeadLetter.of(record)`. With `copies`
        their keys, values and headers are there, too.
        """
        self._topics += 1
        made = f"{DEAD_LETTERS}{self.name(f'topic-{self._topics}')}"
        configs = {"errors.deadletterqueue.group.enable": "true"}
        self._own_admin.create_topic(made, 1, self.copies, configs=configs)
        copying = str(copies).lower()
        self.configure_group(
            group, {"errors.deadletterqueue.topic.name": made, "errors.deadletterqueue.copy.record.enable": copying}
        )
        return made

    def async_admin(self) -> AsyncAdmin:
        """An admin client for `async with`."""
        from barnabas.clients import AsyncAdmin

        return AsyncAdmin(self.bootstrap_servers, config=self.client_config)

    def async_producer(self, **options: Any) -> AsyncProducer[Any, Any]:
        """A producer for `async with`."""
        from barnabas.clients import AsyncProducer

        return AsyncProducer(self.bootstrap_servers, **self._with_client_config(options))

    def async_queue(self, topic: str, group: str | None = None, **options: Any) -> AsyncQueue[Any, Any]:
        """A queue for `async with`; its group is `name("workers")` unless told otherwise."""
        from barnabas.clients import AsyncQueue

        return AsyncQueue(
            self.bootstrap_servers, topic, group or self.name("workers"), **self._with_client_config(options)
        )

    def async_consumer(self, topics: Topics | None = None, **options: Any) -> AsyncConsumer[Any, Any]:
        """A consumer for `async with`; it begins with the first record unless told otherwise."""
        from barnabas.clients import AsyncConsumer

        options.setdefault("auto_offset_reset", "earliest")
        return AsyncConsumer(self.bootstrap_servers, topics, **self._with_client_config(options))

    # What is in a topic

    def send(
        self, topic: str, *values: object, key: str | bytes | None = None, partition: int | None = None
    ) -> list[RecordMetadata]:
        """Put records into a topic, and return where they went once they are stored.

        Bytes are sent as they are, text as UTF-8, anything else as JSON.
        """
        sent = [self._sender.send(topic, _as_bytes(value), _as_bytes(key), partition=partition) for value in values]
        self._sender.flush()
        return [delivery.result() for delivery in sent]

    def records(
        self, topic: str, count: int | None = None, *, timeout: float = 30.0
    ) -> list[ConsumerRecord[bytes, bytes]]:
        """What is in a topic, read from its beginning without a group, partition by partition in order.

        With a `count` it waits until there are so many, and raises TimeoutError if there never are.
        """
        from barnabas.clients import Consumer

        found: list[ConsumerRecord[bytes, bytes]] = []
        deadline = time.monotonic() + timeout
        with Consumer(
            self.bootstrap_servers, topic, auto_offset_reset="earliest", config=self.client_config
        ) as consumer:
            if count is None:
                return list(consumer.until_end())
            while len(found) < count:
                left = deadline - time.monotonic()
                if left <= 0:
                    raise TimeoutError(
                        f"{topic} has {len(found)} records after {timeout:g} s, not {count}: {_preview(found)}"
                    )
                found += consumer.poll(left)
        return found

    def values(self, topic: str, count: int | None = None, *, timeout: float = 30.0) -> list[str | None]:
        """The values of what `records` finds, as text."""
        return [
            None if record.value is None else record.value.decode()
            for record in self.records(topic, count, timeout=timeout)
        ]

    @cached_property
    def _sender(self) -> Producer[bytes, bytes]:
        """Not idempotent: librdkafka takes half a second to get its first producer id."""
        return self.producer(linger_ms=0, enable_idempotence=False)

    @cached_property
    def _own_admin(self) -> Admin:
        """Apart from the other one, which a test may close."""
        from barnabas.clients import Admin

        return Admin(self.bootstrap_servers, config=self.client_config)

    # The end

    def close(self) -> None:
        """Remove faults, close the clients that were opened here, and delete the test's topics."""
        with ExitStack() as stack:
            stack.callback(self._delete_topics)
            stack.push(self._opened.pop_all())
            self.faults.clear()

    def _delete_topics(self) -> None:
        """Again if need be: what a client asked for before it was closed may make a topic anew."""
        if self._brokers.running:
            with self._own_admin as admin:
                for _ in range(MOST_DELETIONS):
                    mine = [
                        name
                        for name in admin.topic_names()
                        if name.removeprefix(DEAD_LETTERS).startswith(f"{self.prefix}.")
                    ]
                    if not mine:
                        break
                    admin.delete_topics(mine)
                    self.faults.settle()


class Kafka(KafkaForTest):
    """A broker as one test uses it."""

    copies = 1

    def __init__(self, broker: Broker, test: str = "test") -> None:
        super().__init__(broker, test)
        self.broker = broker

    @property
    def faults(self) -> BrokerFaults:
        """What can go wrong."""
        return self.broker.faults


class KafkaCluster(KafkaForTest):
    """A cluster as one test uses it."""

    def __init__(self, cluster: Cluster, test: str = "test") -> None:
        super().__init__(cluster, test)
        self.cluster = cluster

    @property
    def brokers(self) -> tuple[Broker, ...]:
        """All brokers, each at the place of its id."""
        return self.cluster.brokers

    @property
    def faults(self) -> ClusterFaults:
        """What can go wrong; on one broker alone: `brokers[0].faults`."""
        return self.cluster.faults

    def leader(self, topic: str, partition: int = 0) -> Broker:
        """The broker that leads a partition."""
        return self.cluster.leader(topic, partition)


def _as_bytes(value: object) -> bytes | None:
    if value is None or isinstance(value, bytes):
        return value
    return (value if isinstance(value, str) else json.dumps(value)).encode()


def _preview(records: Iterable[ConsumerRecord[bytes, bytes]]) -> str:
    values = [record.value for record in records]
    more = f" and {len(values) - 5} more" if len(values) > 5 else ""
    return f"{values[:5]}{more}"
