"""The queue: a work queue over a topic.

    with Queue("localhost:9092", "emails", "mailers", value_deserializer=JSON) as queue:
        for message in queue:
            with message:
                send_email(message.value)

Each message goes to one worker of the group. A worker that dies, or whose connection ends, loses its messages to the
others; one that raises gives its message back for another try. After `share.delivery.count.limit` deliveries (5) the
broker gives a message up.
"""

from __future__ import annotations

import threading
import uuid
import warnings
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, Generic, Self

from barnabas.clients.closed import watch_forks
from barnabas.clients.config import DEFAULT_BOOTSTRAP_SERVERS, check, properties
from barnabas.clients.errors import ClientClosed, InvalidClientConfig, added_to, noted_in, passing_error
from barnabas.clients.queue.engine import QueueEngine, QueueSettings
from barnabas.clients.queue.membership import CLOSE_SECONDS, Membership, begin_with_what_is_there
from barnabas.clients.queue.message import Decoders, QueueMessage
from barnabas.clients.records import K, V
from barnabas.clients.security import security_properties
from barnabas.clients.serializers import from_bytes

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from types import TracebackType

    from barnabas.clients.producer.delivery import Delivery
    from barnabas.clients.producer.producer import Producer
    from barnabas.clients.queue.leader import HeldRecord
    from barnabas.clients.records import Headers
    from barnabas.clients.serializers import Deserializer, Serializer

__all__ = ["Queue"]

PREFETCH: Final = 10
LONGEST_WORK: Final = 600.0
MAX_WAIT_MS: Final = 250
MAX_BYTES: Final = 50 << 20
REQUEST_TIMEOUT_MS: Final = 10_000
OWN_PROPERTIES: Final = {
    "fetch.max.wait.ms": MAX_WAIT_MS,
    "fetch.max.bytes": MAX_BYTES,
    "request.timeout.ms": REQUEST_TIMEOUT_MS,
}
"""Properties that are read here, with their defaults."""


class QueueBase(Generic[K, V]):
    """The constructor of both kinds of queue."""

    def __init__(
        self,
        bootstrap_servers: str = DEFAULT_BOOTSTRAP_SERVERS,
        topic: str | Iterable[str] = (),
        group: str = "",
        *,
        key_deserializer: Deserializer[K] | None = None,
        value_deserializer: Deserializer[V] | None = None,
        key_serializer: Serializer[Any] | None = None,
        value_serializer: Serializer[Any] | None = None,
        prefetch: int = PREFETCH,
        longest_work: float = LONGEST_WORK,
        config: Mapping[str, Any] | None = None,
        **kafka_properties: Any,
    ) -> None:
        """Open a queue. A worker joins its group when it first asks for a message; `send` needs no group.

        - `topic`: the topic, or several; messages are sent to the first.
        - `group`: workers with the same group share the messages. A group that is new begins with the first message.
        - `key_deserializer` and the others: see `clients.serializers`; without one, bytes are given and taken.
        - `prefetch` (10): how many messages may wait here, locked for this worker, while it works on another one.
        - `longest_work` (600): for how many seconds the lock of a message is renewed. After that and the group's
          `share.record.lock.duration.ms` (30 s), another worker gets it.
        - `config` and further keywords are Kafka's properties, as for `Consumer`.

        Raises InvalidClientConfig for what is not understood.
        """
        topics = (topic,) if isinstance(topic, str) else tuple(topic)
        if not topics or not all(topics):
            raise InvalidClientConfig("a queue needs a topic")
        if prefetch < 1:
            raise InvalidClientConfig(f"prefetch is {prefetch}: it has to be at least 1")
        found = properties(bootstrap_servers, config, kafka_properties, {})
        own = {name: int(found.pop(name, default)) for name, default in OWN_PROPERTIES.items()}
        rack = {"client.rack": str(found["client.rack"])} if "client.rack" in found else {}
        self._settings = QueueSettings(
            bootstrap_servers=found["bootstrap.servers"],
            properties={**security_properties(found), **rack},
            topics=topics,
            group_id=group,
            member_id=str(uuid.uuid4()),
            prefetch=prefetch,
            longest_work=longest_work,
            max_wait=timedelta(milliseconds=own["fetch.max.wait.ms"]),
            max_bytes=own["fetch.max.bytes"],
            request_timeout=own["request.timeout.ms"] / 1000,
        )
        self._decoders = Decoders(from_bytes(key_deserializer), from_bytes(value_deserializer))
        self._serializers = key_serializer, value_serializer
        self._config = {name: value for name, value in found.items() if name != "bootstrap.servers"}
        check(self._config)
        self._engine = QueueEngine(self._settings)
        self._membership: Membership | None = None
        self._producer: Producer[Any, Any] | None = None
        self._opening = threading.Lock()
        """Several threads may be the first to take or to send."""
        self._forked = False
        watch_forks(self)

    def __del__(self) -> None:
        if getattr(self, "_membership", None) is not None and not self._engine.closing:
            self._engine.close()
            warnings.warn(
                "a queue was not closed: close it, or use it in a with", ResourceWarning, source=self, stacklevel=2
            )

    def forked(self) -> None:
        """In a child of this process: the threads are in the parent, and so are the messages."""
        self._forked = True

    def _take(self, timeout: float | None) -> HeldRecord | None:
        """The next message that was acquired, from a group that was joined before."""
        self._require_here()
        with self._opening:
            if self._membership is None and not self._engine.closing:
                self._join()
        return self._engine.take(timeout)

    def _message(self, held: HeldRecord) -> QueueMessage[K, V]:
        return QueueMessage(held, self._decoders)

    def _require_here(self) -> None:
        if self._forked:
            raise ClientClosed("the queue was opened by the parent of this process: open another one here")

    def _join(self) -> None:
        if not self._settings.group_id:
            raise InvalidClientConfig("a worker needs a group: Queue(bootstrap_servers, topic, group)")
        wire = self._settings.connect()
        try:
            begin_with_what_is_there(wire, self._settings.group_id)
        except BaseException:
            wire.__exit__()
            raise
        self._membership = Membership(self._engine, wire)
        self._membership.start()

    def _sender(self) -> Producer[Any, Any]:
        """The producer behind `send`."""
        from barnabas.clients.producer.producer import Producer

        self._require_here()
        with self._opening:
            if self._engine.closing:
                raise ClientClosed("the queue is closed")
            if self._producer is None:
                key, value = self._serializers
                self._producer = Producer(
                    self._settings.bootstrap_servers, key_serializer=key, value_serializer=value, config=self._config
                )
            return self._producer

    def _close(self, timeout: float) -> None:
        if self._forked:
            return
        self._engine.close()
        with self._opening:
            membership, producer = self._membership, self._producer
        if membership is not None:
            membership.join(timeout)
        if producer is not None:
            producer.close(timeout)


class Queue(QueueBase[K, V]):
    """A queue of messages. Several threads may take messages from it; close it, or use it in a `with`."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with noted_in(error):
            self.close()

    def __iter__(self) -> Iterator[QueueMessage[K, V]]:
        """Messages, one by one, until the queue is closed: by another thread, or by a signal handler.

        Raises what `get` raises.
        """
        while True:
            try:
                message = self.get()
            except ClientClosed:
                return
            if message is not None:
                yield message

    def get(self, timeout: float | None = None) -> QueueMessage[K, V] | None:
        """The next message; None if none came within `timeout` seconds. Without a timeout it waits.

        Raises RequestRefused if the group cannot be joined, BrokerUnreachable if no broker answers the first time.
        """
        held = self._take(timeout)
        return None if held is None else self._message(held)

    def send(self, value: Any = None, key: Any = None, *, headers: Headers | None = None) -> Delivery:
        """Send a message; the future that comes back says where it went, as that of `Producer.send`."""
        return self._sender().send(self._settings.topics[0], value, key, headers=headers)

    def close(self, timeout: float = CLOSE_SECONDS) -> None:
        """Send acknowledgements and messages that are on their way, give back what is not acknowledged, and leave.

        Closing twice does nothing.
        """
        with added_to(passing_error()):
            self._close(timeout)
