"""The part of a reader that knows what was handed out and what may be committed.

Records are handed out from a list: `records[:at]` went out, and the last `hand` of these are being worked on. Whoever
asks for more is done with them. Automatic commits are of records that are done with, and of no others: what was being
worked on when a program failed, however it failed, is read again.

Offsets that were handed out and that nobody committed can be dropped: by a rebalance, or by a seek backwards. In a
transaction that has used their records, that is the end of it (`require_complete`). And once a transaction was asked to
commit, only the group knows how far it came (`doubt`).
"""

from __future__ import annotations

from collections import deque
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final, Generic

from barnabas.clients.errors import ClientFailed, InvalidClientConfig, TransactionAborted, translated
from barnabas.clients.records import ConsumerRecord, K, TopicPartition, V
from barnabas.clients.serializers import from_bytes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from typing import TypeAlias

    from barnabas.clients.serializers import Deserializer
    from barnabas.model.base_error import BarnabasError

    CommitCallback: TypeAlias = "Callable[[Mapping[TopicPartition, int], BarnabasError | None], object]"

_PLACE: Final = itemgetter(0, 1)
"""Topic and partition of a record, as `attrgetter` has them in three times as long."""
_OFFSET: Final = itemgetter(2)
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
        reset: int | None,
        max_records: int,
        look_every: float,
        key_deserializer: Deserializer[K] | None,
        value_deserializer: Deserializer[V] | None,
    ) -> None:
        """`grouped`: has a group; `incremental`: rebalances take away only what moves; `reset`: BEGINNING or END.

        `look_every`: for how many seconds records may be handed out before librdkafka hears of the program again.
        """
        self.closed = False
        self.max_records = max_records
        self._kafka = kafka
        self._client = client
        self.auto_commit = auto_commit
        self.grouped = grouped
        self.in_transaction = False
        """Whether a transaction is open that will commit what is handed out."""
        self._incremental = incremental
        self._reset = reset
        self._look_every = look_every
        self.due = 0.0
        """When `look` has to be called, while records are handed out."""
        self._read_key = from_bytes(key_deserializer)
        self._read_value = from_bytes(value_deserializer)
        self._arrived: deque[Any] = deque()
        """What librdkafka gave, as it gave it."""
        self._buffer: list[Any] = []
        self._start = 0
        """Messages are in the buffer from here on."""
        self._faulty = False
        """Whether there may be errors among them."""
        self._messages: list[Any] = []
        """The messages that `records` were made of."""
        self.records: list[ConsumerRecord[K, V]] = []
        self.at = 0
        self.hand = 0
        self._noted = 0
        """How many of `records` are in `_next` and `_first`."""
        self._held: dict[TopicPartition, list[Any]] = {}
        self._next: dict[tuple[str, int], int] = {}
        """The offset after the last record that was handed out and is not committed."""
        self._first: dict[tuple[str, int], int] = {}
        """The offset of the first such record."""
        self._asked: dict[tuple[str, int], int] = {}
        """Offsets that are to be committed, automatically or without anybody waiting: `commit` repeats them."""
        self._dropped: dict[tuple[str, int], str] = {}
        """Partitions whose handed out and uncommitted offsets were dropped, and what dropped them."""
        self._doubtful: dict[tuple[str, int], int] = {}
        """Partitions of which it is not known whether what was handed out is committed, and where that began."""
        self._reached: dict[tuple[str, int], int] = {}
        self._chosen = False
        """Whether it was said what to read."""
        self._sought: dict[tuple[str, int], int] = {}
        """Where partitions were moved to of which nothing has come since."""

    def done(self) -> None:
        """Everything that was handed out is processed: store its offsets for the next commit."""
        self.hand = 0
        self._note()
        if self.auto_commit and self._next:
            self._store()
            self._first.clear()

    def handed_out(self) -> dict[TopicPartition, int]:
        """The next offset of each partition from which something was handed out and not committed."""
        self._note()
        return {TopicPartition(*partition): offset for partition, offset in self._next.items()}

    def mark_committed(self) -> None:
        """What was handed out is committed, by other means than a commit here."""
        self._asked.clear()
        self._forget_handed_out()

    def require_complete(self) -> None:
        """Raise TransactionAborted if offsets of records that were handed out are not here any more."""
        if self._dropped:
            told = ", ".join(f"{TopicPartition(*place)} ({why})" for place, why in sorted(self._dropped.items()))
            raise TransactionAborted(
                f"records were handed out whose offsets cannot be committed with the transaction any more: {told}. "
                "It was aborted, and the records will be read again"
            )

    def doubt(self) -> None:
        """Only the group knows whether what was handed out is committed: it is asked before more is read."""
        self._note()
        self._doubtful |= self._first
        self._drop_messages(self._first)
        self._forget_handed_out()

    def _note(self) -> None:
        """Note the offsets of the records that were handed out since the last time."""
        if self._noted == self.at:
            return
        new = self.records[self._noted : self.at]
        last = dict(zip(map(_PLACE, new), map(_OFFSET, new), strict=True))
        for place, offset in last.items():
            self._next[place] = offset + 1
            if place not in self._first:
                self._first[place] = next(record.offset for record in new if _PLACE(record) == place)
        self._noted = self.at

    def _drop_hand(self) -> None:
        """What is in hand was not processed: it will be read again by whoever comes next."""
        self._note()
        for record in reversed(self.records[self.at - self.hand : self.at]):
            place = (record.topic, record.partition)
            if place in self._next:  # not if it was moved or taken away since
                self._next[place] = record.offset
        self.hand = 0

    def _leave_hand(self) -> None:
        """Store what is done with, and only that: the program has not come back from what is in hand."""
        self._drop_hand()
        if self.auto_commit:
            self._store()

    def _forget_handed_out(self) -> None:
        self._note()
        self._next.clear()
        self._first.clear()
        self._dropped.clear()
        self.hand = 0

    def _drop_messages(self, places: Iterable[tuple[str, int]]) -> None:
        """Hand out nothing of what was fetched of these partitions."""
        self._put_back()
        gone = set(places)
        for place in gone:
            self._reached.pop(place, None)
            self._sought.pop(place, None)
            held = TopicPartition(*place)
            if held in self._held:
                self._held[held] = []
        if self._buffer:
            self._buffer = [m for m in self._buffer if m.error() or (m.topic(), m.partition()) not in gone]

    def _put_back(self) -> None:
        """Make messages again of the records that are next; the buffer is then just what comes next."""
        self._note()
        at = self.at
        buffer = [*self._messages[at:], *self._buffer[self._start :]]
        self._buffer, self._start, self.records, self._messages = buffer, 0, self.records[:at], self._messages[:at]

    def commit(self, offsets: Mapping[TopicPartition, int] | None, *, wait: bool) -> None:
        """Commit these offsets, or all that was handed out.

        librdkafka is always told the offsets: of those that are stored with it, it leaves out what lies before the
        committed ones, as after a seek backwards.
        """
        self._need_group("commit")
        if self.in_transaction:
            raise ClientFailed("_STATE", "commit: the transaction that is open commits what was handed out")
        self._note()
        if offsets is None:
            self.hand = 0
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
            self._dropped.clear()
        self._first.clear()

    def committed(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int | None]:
        """The committed offset of each partition; None where there is none.

        Where a transaction that commits offsets is not decided yet, that is waited for.
        """
        self._need_group("ask for committed offsets")
        found = self._ask("committed offsets", self._client.committed, self._plain(partitions), TIMEOUT)
        for place in found:
            if place.error is not None:
                raise translated(place.error, f"committed offset of {place.topic}-{place.partition}")
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
