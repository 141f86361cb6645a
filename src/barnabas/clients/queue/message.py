"""A message of a queue: a record, how often it was delivered, and what becomes of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, NamedTuple, Self

from barnabas.clients.errors import DeserializationFailed
from barnabas.clients.queue.dead_letter import DeadLetter
from barnabas.clients.records import ConsumerRecord, K, V
from barnabas.protocol.acknowledgements import Acknowledgement

if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import Future
    from datetime import datetime
    from types import TracebackType

    from barnabas.clients.queue.leader import HeldRecord

__all__ = ["QueueMessage"]


class Decoders(NamedTuple):
    """How the bytes of keys and values are read; None leaves them as they are."""

    key: Callable[[bytes], Any] | None
    value: Callable[[bytes], Any] | None


class QueueMessage(Generic[K, V]):
    """A message that this worker has, until it says what became of it or its lock is lost.

    `done()`, `retry()` and `reject()` do not wait. They return a future that ends when the broker has stored the
    acknowledgement, or with NotAcknowledged if the lock was lost before: then another worker gets the message. The loss
    is logged, too. The first of the three counts, whatever is called after it.

    In a `with` (or `async with`), a message is done at the end of the block, and is retried if an exception leaves it,
    unless one of the three was called in it.
    """

    __slots__ = ("_decoders", "_held", "_settled")

    def __init__(self, held: HeldRecord, decoders: Decoders) -> None:
        self._held = held
        self._decoders = decoders
        self._settled: Future[None] | None = None

    @property
    def record(self) -> ConsumerRecord[bytes, bytes]:
        """The record as it came, with its topic, partition, offset, timestamp and headers."""
        return self._held.record

    @property
    def key(self) -> K | None:
        """The key. Raises DeserializationFailed."""
        key: K | None = self._decode(self._decoders.key, self.record.key, "key")
        return key

    @property
    def value(self) -> V | None:
        """The value. Raises DeserializationFailed, which in a `with` sends the message back for another try."""
        value: V | None = self._decode(self._decoders.value, self.record.value, "value")
        return value

    @property
    def time(self) -> datetime | None:
        """The timestamp as a moment in UTC."""
        return self.record.time

    @property
    def deliveries(self) -> int:
        """How often it was delivered, this time included."""
        return self.record.delivery_count or 1

    @property
    def dead_letter(self) -> DeadLetter | None:
        """What it says of a message that another group gave up; None unless it comes from a topic of dead letters."""
        return DeadLetter.of(self.record)

    @property
    def settled(self) -> bool:
        """Whether `done`, `retry` or `reject` was called."""
        return self._settled is not None

    def done(self) -> Future[None]:
        """It is processed: nobody gets it again."""
        return self.settle(Acknowledgement.ACCEPT)

    def retry(self) -> Future[None]:
        """It is for another try, by any worker and at once, unless its deliveries are used up."""
        return self.settle(Acknowledgement.RELEASE)

    def reject(self) -> Future[None]:
        """It cannot be processed: nobody gets it again. It has a dead letter if the group has them."""
        return self.settle(Acknowledgement.REJECT)

    def settle(self, acknowledgement: Acknowledgement) -> Future[None]:
        """What the three above do, for a program that decides which."""
        if self._settled is None:
            self._settled = self._held.settle(acknowledgement)
        return self._settled

    def _decode(self, decoder: Callable[[bytes], Any] | None, data: bytes | None, what: str) -> Any:
        if decoder is None or data is None:
            return data
        try:
            return decoder(data)
        except Exception as error:
            record = self.record
            raise DeserializationFailed(
                f"the {what} of {self!r} cannot be read: {error}",
                partition=record.topic_partition,
                offset=record.offset,
                data=data,
            ) from error

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.settle(Acknowledgement.ACCEPT if kind is None else Acknowledgement.RELEASE)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.__exit__(kind, error, trace)

    def __repr__(self) -> str:
        return f"<QueueMessage {self.record.topic_partition}@{self.record.offset}, delivery {self.deliveries}>"
