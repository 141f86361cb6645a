"""One block of `producer.transaction()`: its steps, each of which waits for the broker.

The promise: records and the offsets they were made from become visible together or never, and afterwards the consumer
reads on from where its group is. A signal handler may raise, and a task may be cancelled, between any two steps: it is
known from the block alone what has to be undone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from barnabas.clients.errors import BarnabasError, InvalidClientConfig, ProducerFenced, TransactionAborted

if TYPE_CHECKING:
    from collections.abc import Mapping

    from barnabas.clients.consumer.consumer import ConsumerBase
    from barnabas.clients.producer.native import NativeProducer
    from barnabas.clients.producer.transactions import ProducerTransactions
    from barnabas.model.ids import TopicPartition


class TransactionBlock:
    """One transaction of a producer, with or without a consumer."""

    def __init__(
        self, native: NativeProducer, transactions: ProducerTransactions | None, consumer: ConsumerBase[Any, Any] | None
    ) -> None:
        """Raises InvalidClientConfig for a producer without a transactional id, or a consumer that cannot take part."""
        if transactions is None:
            raise InvalidClientConfig("transactions need a name that survives restarts: give transactional_id=")
        if consumer is not None:
            _require_transactional(consumer)
        self._native = native
        self._transactions = transactions
        self._consumer = consumer
        self._commit_requested = False

    def begin(self) -> bool:
        """Begin the transaction; whether the abort of an earlier one was finished first.

        The program knows of that one's records: what failed of them is not kept for `flush` and `close`.
        """
        aborting = self._transactions.aborting
        self._transactions.begin(self)
        if self._consumer is not None:
            self._consumer.begin_transaction()
        return aborting

    def send_offsets(self, offsets: Mapping[TopicPartition, int], group_metadata: object) -> None:
        """Make the consumer's offsets part of the transaction."""
        self._transactions.send_offsets(offsets, group_metadata)

    def commit(self) -> None:
        """Make everything visible; the consumer's records count as committed."""
        self._commit_requested = True
        self._transactions.commit()
        if self._consumer is not None:
            self._consumer.end_transaction()
            self._consumer.mark_committed()

    def is_begun(self) -> bool:
        """Whether it was this block that began the transaction; another one that is open goes on."""
        return self._transactions.block is self

    def is_doubtful(self, error: BaseException) -> bool:
        """Whether it may be committed although the block ends with this error.

        A signal handler may raise when the commit is done, and before this is known here.
        """
        commit_may_be_done = self._commit_requested and not isinstance(error, TransactionAborted)
        return self.is_begun() and (self._transactions.undecided or commit_may_be_done)

    def give_up(self, error: BaseException) -> None:
        """Abort the transaction after an error. Of a fenced producer's records nothing will ever come.

        Where that fails although librdkafka asked for it, it is noted in the error that says why it did.
        """
        transactions = self._transactions
        fenced = isinstance(error, ProducerFenced)
        try:
            if self.is_begun() and transactions.open and not fenced:
                transactions.give_up()
        except ProducerFenced:
            fenced = True
            raise
        except BarnabasError as failure:
            if not isinstance(error, TransactionAborted):
                raise
            error.add_note(str(failure))
        finally:
            if fenced:
                transactions.open = transactions.undecided = False
                self._native.give_up_all()

    def leave_consumer(self) -> None:
        """The consumer takes part in no transaction any more."""
        if self.is_begun():
            self._native.settlements.failures.forget()
            if self._consumer is not None:
                self._consumer.end_transaction()


def _require_transactional(consumer: ConsumerBase[Any, Any]) -> None:
    if consumer.commits_by_itself:
        raise InvalidClientConfig(
            "the consumer commits by itself, also what a transaction that fails has read: "
            "give the consumer auto_commit=False, and the transaction commits for it"
        )
    if not consumer.reads_committed:
        raise InvalidClientConfig(
            "the consumer does not wait for transactions that commit offsets of its group, and would read their "
            'records twice: give it isolation_level="read_committed", or none'
        )
