"""The part of a reader that knows what was handed out and what may be committed.

An offset is stored for committing only when its record was handed out *and* the program came back for more (or
committed, or closed without an error): what was being worked on when a program failed is read again.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, Final, Generic

from barnabas.clients.errors import ClientClosed, InvalidClientConfig, translated
from barnabas.clients.records import ConsumerRecord, K, TopicPartition, V
from barnabas.clients.serializers import from_bytes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from typing import TypeAlias

    from barnabas.clients.serializers import Deserializer
    from barnabas.model.base_error import BarnabasError

    CommitCallback: TypeAlias = "Callable[[Mapping[TopicPartition, int], BarnabasError | None], object]"

TIMEOUT: Final = 30.0
"""How long a broker may take to answer, in seconds."""


class CommittingReader(Generic[K, V]):
    """The part of a reader that commits; and what all its parts know."""

    def __init__(
        self,
        kafka: Any,
        client: Any,
        *,
        grouped: bool,
        incremental: bool,
        auto_commit: bool,
        reset: int,
        max_records: int,
        key_deserializer: Deserializer[K] | None,
        value_deserializer: Deserializer[V] | None,
    ) -> None:
        """`grouped`: has a group; `incremental`: rebalances take away only what moves; `reset`: BEGINNING or END."""
        self.closed = False
        self.max_records = max_records
        self._kafka = kafka
        self._client = client
        self.auto_commit = auto_commit
        self.grouped = grouped
        self._incremental = incremental
        self._reset = reset
        self._read_key = from_bytes(key_deserializer)
        self._read_value = from_bytes(value_deserializer)
        self._buffer: deque[Any] = deque()
        self._held: dict[TopicPartition, list[Any]] = {}
        self._next: dict[tuple[str, int], int] = {}
        self._first: dict[tuple[str, int], int] = {}
        self._asked: dict[tuple[str, int], int] = {}
        """Offsets that are to be committed, automatically or without anybody waiting: `commit` repeats them."""
        self._reached: dict[tuple[str, int], int] = {}
        self._in_hand: Sequence[ConsumerRecord[K, V]] = ()
        self._chosen = False
        """Whether it was said what to read."""
        self._sought: dict[tuple[str, int], int] = {}
        """Where partitions were moved to of which nothing has come since."""

    def done(self) -> None:
        """Everything that was handed out is processed: store its offsets for the next commit."""
        self._in_hand = ()
        if self.auto_commit and self._next:
            self._store()
            self._first.clear()

    def failed(self) -> None:
        """What is in hand was not processed: it will be read again by whoever comes next."""
        for record in reversed(self._in_hand):
            self._next[record.topic, record.partition] = record.offset
        self._in_hand = ()

    def handed_out(self) -> dict[TopicPartition, int]:
        """The next offset of each partition from which something was handed out and not committed."""
        return {TopicPartition(*partition): offset for partition, offset in self._next.items()}

    def mark_committed(self) -> None:
        """What was handed out is committed, by other means than a commit here."""
        self._asked.clear()
        self._forget_handed_out()

    def _forget_handed_out(self) -> None:
        self._next.clear()
        self._first.clear()
        self._in_hand = ()

    def commit(self, offsets: Mapping[TopicPartition, int] | None, *, wait: bool) -> None:
        """Commit these offsets, or all that was handed out.

        librdkafka is always told the offsets: of those that are stored with it, it leaves out what lies before the
        committed ones, as after a seek backwards.
        """
        self._need_group("commit")
        if offsets is None:
            self._in_hand = ()
            if self.auto_commit:
                self._store()  # or an automatic commit would repeat what was stored before
        wanted = {**self._asked, **self._next} if offsets is None else offsets
        if not wanted:
            return
        places = [self._kafka.TopicPartition(*partition, offset) for partition, offset in wanted.items()]
        try:
            answer = self._client.commit(offsets=places, asynchronous=not wait)
        except self._kafka.KafkaException as error:
            raise translated(error.args[0], "commit") from error
        for partition in answer or ():
            if partition.error is not None:
                raise translated(partition.error, f"commit {partition.topic}-{partition.partition}")
        if offsets is None:
            self._asked = {} if wait else {**self._asked, **self._next}
            self._next.clear()
        self._first.clear()

    def committed(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int | None]:
        """The committed offset of each partition; None where there is none."""
        self._need_group("ask for committed offsets")
        found = self._ask("committed offsets", self._client.committed, self._plain(partitions), TIMEOUT)
        return {TopicPartition(p.topic, p.partition): p.offset if p.offset >= 0 else None for p in found}

    def group_metadata(self) -> Any:
        """What a transaction needs to know of the group."""
        self._need_group("take part in a transaction")
        return self._client.consumer_group_metadata()

    def _store(self) -> None:
        if not self._next:
            return
        offsets = [self._kafka.TopicPartition(*partition, offset) for partition, offset in self._next.items()]
        self._asked |= self._next
        self._next.clear()
        try:
            self._client.store_offsets(offsets=offsets)
        except self._kafka.KafkaException as error:
            # A partition that was taken away meanwhile: whoever has it now reads from the last commit.
            if error.args[0].code() != error.args[0]._STATE:
                raise translated(error.args[0], "store offsets") from error

    def _need_group(self, doing: str) -> None:
        if not self.grouped:
            raise InvalidClientConfig(f"to {doing}, a consumer needs a group: give group_id=")

    def _plain(self, partitions: Iterable[TopicPartition]) -> list[Any]:
        return [self._kafka.TopicPartition(*partition) for partition in partitions]

    def _ask(self, doing: str, call: Callable[..., Any], *arguments: Any) -> Any:
        try:
            return call(*arguments)
        except self._kafka.KafkaException as error:
            raise translated(error.args[0], doing) from error
        except RuntimeError as error:
            raise ClientClosed("the consumer is closed") from error
