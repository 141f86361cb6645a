"""How messages come from librdkafka into the buffer.

The promise: no message is lost, also if a signal handler raises. What librdkafka gives is kept by the same call,
without an instruction of Python's in between (`_receive`). If the handler raises within that call, confluent-kafka
drops the messages of the call; they are read again (`recover`).
"""

from __future__ import annotations

from time import monotonic, sleep
from typing import TYPE_CHECKING, Any, Final

from barnabas.clients.config import log

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from barnabas.clients.consumer.fetched import FetchedRecords
    from barnabas.clients.consumer.native import NativeConsumer
    from barnabas.clients.consumer.seeking import Positions

DISTURBED_SECONDS: Final = 0.002
"""How often librdkafka is asked for messages after a signal has interrupted a call."""


class Receiver:
    """Asks librdkafka for messages, and puts them in order."""

    def __init__(
        self, native: NativeConsumer, fetched: FetchedRecords[Any, Any], positions: Positions, *, poll_every: float
    ) -> None:
        """`poll_every`: for how many seconds records may be handed out before librdkafka hears of the program again."""
        self._native = native
        self._fetched = fetched
        self._positions = positions
        self._poll_every = poll_every
        self.due = 0.0
        """When librdkafka has to be called, while records are handed out."""
        self._receiving = False
        """Whether librdkafka was asked for messages, and the call has not come to its end."""
        self._disturbed = False
        """Whether a signal has interrupted a call of librdkafka's, and no messages have come since."""

    def recover(self) -> None:
        """After a call that was interrupted: put what has arrived in order, and read again what has not."""
        if self._receiving:
            self._disturbed = True
            self.sort()
            self._positions.abandon_interrupted()
            self._receiving = False
        if self._positions.has_suspects():
            self.sort()  # what has arrived is not lost
            self._positions.find_lost()

    def receive(self, wanted: int) -> None:
        """Take at most so many messages that librdkafka has already."""
        self._receive(self._native.client.consume, wanted, 0)

    def wait(self, timeout: float, wanted: int) -> None:
        """Wait for messages, unless some have arrived."""
        if timeout > 0 and not self._has_arrived():
            self._wait(timeout, wanted)

    def _wait(self, timeout: float, wanted: int) -> None:
        """Wait in librdkafka. A signal handler that raises meanwhile costs the messages that end the wait.

        So after a signal the wait is in Python until some have come, or a program with many signals would get none.
        """
        if not self._disturbed:
            self._receive(self._native.client.poll, timeout)
            if wanted > 1 and self._has_arrived():
                self._receive(self._native.client.consume, wanted - 1, 0)
            return
        deadline = monotonic() + timeout
        while not self._has_arrived() and monotonic() < deadline:
            sleep(DISTURBED_SECONDS)
            self._receive(self._native.client.consume, wanted, 0)
        self._disturbed = not self._has_arrived()

    def _receive(self, call: Callable[..., Any], *arguments: Any) -> None:
        """Keep what librdkafka gives, without an instruction of Python's in between."""
        self._receiving = True
        try:
            self._fetched.arrived.extend(map(call, *((argument,) for argument in arguments)))
        except self._native.kafka.KafkaException as error:
            raise self._native.translated(error.args[0], "read") from error
        finally:
            self.due = monotonic() + self._poll_every
        self._receiving = False

    def _has_arrived(self) -> bool:
        return any(True for _ in _each(self._fetched.arrived))

    def sort(self) -> None:
        """Put what has arrived into the buffer: records and errors. Ends of partitions are noted."""
        arrived = self._fetched.arrived
        if not arrived:
            return
        found = list(_each(arrived))
        misplaced = self._positions.find_misplaced(found)
        errors = any([message.error() for message in found])  # noqa: C419  (a generator takes twice as long)
        if errors or misplaced or self._positions.has_doubts():
            found = [message for message in found if self._is_to_be_read(message, misplaced)]
        self._fetched.add(found, errors=errors)
        self._positions.seek_again(misplaced)  # last: where that fails, what came of other partitions is kept

    def _is_to_be_read(self, message: Any, misplaced: dict[tuple[str, int], int]) -> bool:
        place = (message.topic(), message.partition())
        if place in misplaced or self._positions.is_doubtful(place):
            return False
        error = message.error()
        if error is None:
            return True
        if error.code() == error._PARTITION_EOF:
            self._positions.reach_end(place, message.offset())
            return False
        if error.code() == error._MAX_POLL_EXCEEDED:
            log.error(
                "The consumer was removed from its group: it asked for no records for longer than "
                "max.poll.interval.ms. Records that it was handed out and has not committed are read again, here or by "
                "another member. Take fewer records at a time (max_poll_records, or max_records of poll), or set "
                "max_poll_interval_ms to more time than the work on them takes. librdkafka says: %s",
                error.str(),
            )
            return False
        # librdkafka looks for a coordinator even where there is no group to join.
        return self._native.group_id is not None or error.code() != error.GROUP_AUTHORIZATION_FAILED


def _each(arrived: Iterable[Any]) -> Iterator[Any]:
    """Messages, from what `consume` (a list) and `poll` (one or None) gave."""
    for found in arrived:
        if isinstance(found, list):
            yield from found
        elif found is not None:
            yield found
