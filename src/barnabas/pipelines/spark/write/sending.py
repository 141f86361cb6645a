"""Records on their way into topics: produced in order, counted, and waited for.

The producer is idempotent, so that librdkafka's own retries repeat nothing (unless a job asks for what rules that out,
as `acks=1`; Java's producers give it up then as well), and chooses partitions for keys as Java's
clients do, so that a job that moves here from Spark's own sink keeps its order.
"""

from __future__ import annotations

import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, Self

from barnabas.clients.config import open_client
from barnabas.clients.errors import BarnabasError, BrokerUnreachable, ProducerFenced
from barnabas.clients.library import load_kafka
from barnabas.clients.logins import LoginErrors
from barnabas.clients.producer.delivery import writing_error
from barnabas.clients.producer.serving import FatalFailure, serve
from barnabas.clients.producer.transactions import ProducerTransactions
from barnabas.pipelines.errors import NotWritten
from barnabas.pipelines.spark.client_properties import against_idempotence, without_api_timeout

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from barnabas.pipelines.spark.write.rows import SinkRecord

TUNING: Final[Mapping[str, object]] = {
    "partitioner": "murmur2_random",
    "linger.ms": 20,
    "queue.buffering.max.kbytes": 64 << 10,
    "delivery.report.only.error": True,
    "log_level": 0,
}
TRANSACTION_MS: Final = 300_000
"""How long a task may take for its rows; a restarted task ends the transaction of its predecessor sooner."""
ROOM_SECONDS: Final = 0.1
FLUSH_SECONDS: Final = 1.0
LOGIN_SECONDS: Final = 10.0
"""How long nothing may arrive when brokers do not let us in."""
POLL_RECORDS: Final = 1000
"""After how many records it is asked whether one did not arrive."""
GIVEN_UP: Final = (
    "the broker has given the task's transaction up: it took longer than kafka.transaction.timeout.ms, or another "
    "attempt of the task has begun"
)


class RecordSender:
    """A producer for one task. Leaving the block waits for nothing: `finish` does."""

    def __init__(self, client: Mapping[str, str], transactional_id: str | None = None) -> None:
        self._kafka = load_kafka()
        self._logins = LoginErrors()
        idempotent = {"enable.idempotence": not against_idempotence(client)}
        own = {"error_cb": self._logins, "on_delivery": self._note}
        found: dict[str, Any] = {**TUNING, **idempotent, **without_api_timeout(client), **own}
        if transactional_id is not None:
            found = {"transaction.timeout.ms": TRANSACTION_MS, **found, "transactional.id": transactional_id}
        self._client = open_client(self._kafka, "Producer", found)
        self.transactions = ProducerTransactions(self._kafka, self._client, transactional_id or "")
        self._unseen = 0
        self._sent = 0
        self._arrived = 0
        self._failed = 0
        self._reason: BarnabasError | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: BaseException | None, _: object) -> None:
        if kind is not None and self.transactions.open:
            with suppress(BarnabasError):  # the broker ends it too, only later
                self.transactions.abort()
        self._client.purge()
        with suppress(NotWritten):  # what went wrong is told already
            self._served(self._client.flush, ROOM_SECONDS)
        # The client knows us by `_note`. It has to be forgotten, or it would live on in a worker that is used again.
        del self._client, self.transactions
        if isinstance(error, BrokerUnreachable) and self._logins.failure is not None:
            raise NotWritten(str(self._logins.failure)) from error

    def send(self, record: SinkRecord) -> None:
        """Put a record into the buffer, waiting for room. Raises NotWritten if one before it did not arrive."""
        alone = False
        while True:
            try:
                self._client.produce(record.topic, record.value, record.key, record.partition, headers=record.headers)
            except BufferError as failure:
                if alone:
                    raise NotWritten(f"topic {record.topic}: a record is larger than kafka.buffer.memory") from failure
                self._served(self._client.poll, ROOM_SECONDS)
                alone = not len(self._client)
            except self._kafka.KafkaException as failure:
                self._served(self._client.poll, 0)  # which knows why a producer is of no more use
                reason = writing_error(failure.args[0], record.topic)
                raise NotWritten(f"topic {record.topic}: {reason}").with_remedy(reason.remedy) from failure
            else:
                break
        self._sent += 1
        self._unseen += 1
        if self._unseen >= POLL_RECORDS:
            self._unseen = 0
            self._served(self._client.poll, 0)
            self._check()
            self._moves_on()

    def finish(self) -> None:
        """Wait until everything has arrived. Raises NotWritten, soon if brokers do not let us in."""
        since = time.monotonic()
        while left := self._served(self._client.flush, FLUSH_SECONDS):
            self._check()
            if self._moves_on():
                since = time.monotonic()
            elif self._logins.failure is not None and time.monotonic() - since > LOGIN_SECONDS:
                raise NotWritten(f"{left} records did not arrive: {self._logins.failure}") from self._logins.failure
        self._check()

    def commit_with(self, offset: Any, group: Any) -> None:
        """Commit the transaction together with an offset of a group. Raises NotWritten."""
        self.finish()
        try:
            self.transactions.send_places([offset], group)
            self.transactions.commit()
        except ProducerFenced as error:
            raise NotWritten(f"{GIVEN_UP} ({error})") from error

    def _served(self, call: Callable[[float], int], seconds: float) -> int:
        """Poll or flush. Raises NotWritten if the producer is of no more use: confluent-kafka tells that in between."""
        try:
            return serve(call, seconds)
        except FatalFailure as failure:
            raise NotWritten(self._fate(failure)) from failure

    def _fate(self, failure: FatalFailure) -> str:
        """Why it is of no more use. A callback may have made a SystemError of that, but its transaction knows too."""
        try:
            if self.transactions.open:
                self.transactions.abort()
        except ProducerFenced as error:
            return f"{GIVEN_UP} ({error})"
        except BarnabasError as error:
            return str(error)
        return f"the producer gave up: {failure if failure.error is None else writing_error(failure.error)}"

    def _note(self, error: Any, message: Any) -> None:
        if error is not None:
            self._failed += 1
            login = self._logins.failure if error.code() == error._MSG_TIMED_OUT else None
            self._reason = self._reason or login or writing_error(error, message.topic())

    def _moves_on(self) -> bool:
        """Whether more has arrived since this was asked: if so, brokers let us in. Each good delivery is not told."""
        arrived = self._sent - len(self._client)
        if arrived <= self._arrived:
            return False
        self._arrived = arrived
        self._logins.forget()
        return True

    def _check(self) -> None:
        if self._reason is not None:
            told = f"{self._failed} records did not arrive, the first one because: {self._reason}"
            raise NotWritten(told).with_remedy(self._reason.remedy)


def send_plainly(records: Iterable[SinkRecord], client: Mapping[str, str]) -> None:
    """Send records, and wait for them. Raises NotWritten."""
    with RecordSender(client) as sender:
        for record in records:
            sender.send(record)
        sender.finish()
