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

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from barnabas.model.ids import TopicPartition

TIMEOUT: Final = 60.0
SLICE: Final = 1.0
"""How long one call may take. librdkafka goes on with it when it is made again, and only then says that the producer
was fenced meanwhile."""
RETRY_SECONDS: Final = 0.1
LOOK_SECONDS: Final = 0.001


class Transactions:
    """The transactions of one producer, one at a time. All calls wait for the broker."""

    def __init__(self, kafka: Any, client: Any) -> None:
        self._kafka = kafka
        self._client = client
        self._registered = False
        self.open = False
        self.undecided = False
        """Whether the last one was asked to commit, and nobody knows what became of it."""

    def begin(self) -> None:
        """Begin one; the first time, take the transactional id over from earlier producers that had it."""
        if self.open:
            raise ClientFailed("_STATE", "begin a transaction: this producer is in one already, and has one at a time")
        if self.undecided:
            self._decide()
        if not self._registered:
            self._call("register the transactional id", lambda: self._client.init_transactions(SLICE))
            self._registered = True
        self._call("begin a transaction", self._client.begin_transaction)
        self.open = True

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

    def abort(self, patience: float | None = None) -> None:
        """Give the transaction up; what was sent in it will never be visible to readers of committed data."""
        self.open = False
        self._call("abort the transaction", lambda: self._client.abort_transaction(SLICE), patience)
        self.undecided = False

    def give_up(self) -> None:
        """Abort it after an error; one that may have been committed only if librdkafka knows that it was not."""
        if not self.undecided:
            self.abort()
            return
        with suppress(BarnabasError):
            self.abort(patience=0)

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

        librdkafka itself looks every 10 ms, if it was the pump that heard of the last record.
        """
        deadline = time.monotonic() + SLICE
        while self._client.flush(LOOK_SECONDS) and time.monotonic() < deadline:
            pass

    def _call(self, doing: str, call: Callable[[], object], patience: float | None = None) -> None:
        deadline = time.monotonic() + (TIMEOUT if patience is None else patience)
        while True:
            try:
                call()
            except self._kafka.KafkaException as failure:
                error = failure.args[0]
                if not error.retriable() or time.monotonic() > deadline:
                    raise self._explained(error, doing) from failure
                time.sleep(RETRY_SECONDS)
            else:
                return

    def _explained(self, error: Any, doing: str) -> Exception:
        kinds = self._kafka.KafkaError
        if error.code() in (kinds._FENCED, kinds.PRODUCER_FENCED, kinds.INVALID_PRODUCER_EPOCH):
            return ProducerFenced(f"{doing}: another producer has the same transactional id now ({error.str()})")
        if error.txn_requires_abort():
            return TransactionAborted(f"{doing}: {error.str()}")
        return translated(error, doing)
