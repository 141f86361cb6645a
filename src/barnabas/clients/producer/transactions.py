"""Transactions: records on several partitions, and the offsets they were made from, visible together or not at all.

librdkafka sorts its errors into three kinds, and so do we: those after which the same call is made again, those after
which the transaction has to be aborted (TransactionAborted), and those after which the producer is of no more use
(ProducerFenced, ClientFailed).
"""

from __future__ import annotations

import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from barnabas.clients.errors import BarnabasError, ClientFailed, ProducerFenced, TransactionAborted, translated
from barnabas.clients.producer.serving import FatalFailure, serve
from barnabas.model.permissions import in_transaction

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from barnabas.model.ids import TopicPartition

TIMEOUT: Final = 60.0
SLICE: Final = 1.0
"""How long one call may take. librdkafka goes on with it when it is made again, and only then says that the producer
was fenced meanwhile."""
RETRY_SECONDS: Final = 0.1
LOOK_SECONDS: Final = 0.001


class ProducerTransactions:
    """The transactions of one producer, one at a time. All calls wait for the broker."""

    def __init__(self, kafka: Any, client: Any, transactional_id: str = "") -> None:
        self._action = in_transaction(transactional_id)
        self._kafka = kafka
        self._client = client
        self._registered = False
        self._registering = False
        """Whether the registration was asked for: a signal may have hidden that it is done."""
        self.open = False
        self.block: object = None
        """Whoever began the one that is open, or was the last."""
        self._begun = False
        """Whether librdkafka has said that it began that one."""
        self.aborting = False
        """Whether an abort was asked for that has not come to its end."""
        self.undecided = False
        """Whether the last one was asked to commit, and nobody knows what became of it."""

    def begin(self, block: object = None) -> None:
        """Begin one; the first time, take the transactional id over from earlier producers that had it.

        It counts as open before librdkafka is asked, because a signal handler may raise when librdkafka has begun it.
        """
        if self.open:
            raise ClientFailed("_STATE", "begin a transaction: this producer is in one already, and has one at a time")
        if self.undecided:
            self._decide()
        if self.aborting:
            self.abort()
        if not self._registered:
            self._register()
        self.block, self.open, self._begun = block, True, False
        try:
            self._call("begin a transaction", self._client.begin_transaction)
        except BarnabasError:
            self.block, self.open = None, False
            raise
        self._begun = True

    def send_offsets(self, offsets: Mapping[TopicPartition, int], group_metadata: object) -> None:
        """Make offsets of a group part of the transaction."""
        if offsets:
            self.send_places(
                [self._kafka.TopicPartition(*partition, offset) for partition, offset in offsets.items()],
                group_metadata,
            )

    def send_places(self, places: list[Any], group_metadata: object) -> None:
        """The same with offsets as confluent-kafka has them, which may carry metadata."""
        self._call(
            "add offsets to the transaction",
            lambda: self._client.send_offsets_to_transaction(places, group_metadata, SLICE),
        )

    def commit(self) -> None:
        """Wait for the transaction's records, and make them visible.

        Where that fails, `undecided` says whether they may be visible all the same.
        """
        self._deliver()
        self.undecided = True
        try:
            self._commit()
        except TransactionAborted:
            self.undecided = False
            raise
        except BarnabasError as error:
            error.add_note(
                "Whether the transaction was committed is not known yet. A consumer that took part in it goes on from "
                "what its group has committed; the next transaction of this producer begins when it is known."
            )
            raise
        self.undecided = self.open = False

    def abort(self, timeout: float | None = None) -> None:
        """Give the transaction up; what was sent in it will never be visible to readers of committed data."""
        again, self.aborting, self.open = self.aborting, True, False
        try:
            self._call("abort the transaction", lambda: self._client.abort_transaction(SLICE), timeout)
        except ClientFailed as error:
            if error.name != "_STATE" or (self._begun and not again):  # that is: librdkafka has none, or none any more
                raise
        self.undecided = self.aborting = False

    def give_up(self) -> None:
        """Abort it after an error; one that may have been committed only if librdkafka knows that it was not."""
        if not self.undecided:
            self.abort()
            return
        with suppress(BarnabasError):
            self.abort(timeout=0)

    def close(self, timeout: float | None, closed: Any) -> None:
        """Abort what is open, and go on with a client that refuses every call."""
        try:
            if self.open:
                self.abort(timeout)
        finally:
            self.leave(closed)

    def leave(self, closed: Any) -> None:
        """From here on, ask a client that refuses every call."""
        self._client, self.open = closed, False

    def _register(self) -> None:
        again, self._registering = self._registering, True
        try:
            self._call("register the transactional id", lambda: self._client.init_transactions(SLICE))
        except ClientFailed as error:
            if error.name != "_STATE" or not again:  # that is: it is done
                raise
        self._registered = True

    def _commit(self) -> None:
        self._call("commit the transaction", lambda: self._client.commit_transaction(SLICE))

    def _decide(self) -> None:
        """Learn what became of the last transaction: librdkafka goes on with the commit."""
        try:
            self._commit()
        except TransactionAborted as error:
            if isinstance(error, ProducerFenced):
                raise
            self.abort()
        except ClientFailed as error:
            if error.name != "_STATE":  # that is: none is open any more
                raise
        self.undecided = False

    def _deliver(self) -> None:
        """Send what waits, and look often whether it has arrived; what takes too long is left to librdkafka.

        librdkafka itself looks every 10 ms, if it was the poller that heard of the last record. After a fatal error the
        commit says what it was.
        """
        deadline = time.monotonic() + SLICE
        with suppress(FatalFailure):
            while serve(self._client.flush, LOOK_SECONDS) and time.monotonic() < deadline:
                pass

    def _call(self, doing: str, call: Callable[[], object], timeout: float | None = None) -> None:
        deadline = time.monotonic() + (TIMEOUT if timeout is None else timeout)
        while True:
            try:
                call()
            except self._kafka.KafkaException as failure:
                error = failure.args[0]
                if not error.retriable() or time.monotonic() > deadline:
                    raise self._translate(error, doing) from failure
                time.sleep(RETRY_SECONDS)
            else:
                return

    def _translate(self, error: Any, doing: str) -> Exception:
        kinds = self._kafka.KafkaError
        if error.code() in (kinds._FENCED, kinds.PRODUCER_FENCED, kinds.INVALID_PRODUCER_EPOCH):
            return ProducerFenced(f"{doing}: another producer has the same transactional id now ({error.str()})")
        cause = translated(error, doing, self._action)
        if error.txn_requires_abort():
            return TransactionAborted(f"{doing}: {error.str()}").with_remedy(cause.remedy)
        return cause
