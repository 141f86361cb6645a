"""Batches that a producer has to retry, and how the batches that it sent after them are answered.

A producer has several batches in flight. If one is refused with a retriable error (too few replicas are in sync, or the
leader is not known yet), and the cause is gone when the next batch is checked, then the next batch is out of order
through no fault of its producer. If librdkafka is answered OUT_OF_ORDER_SEQUENCE_NUMBER, it begins a new epoch and
sends all batches in flight again, in all partitions: batches that are stored already are stored twice. So a batch after
one that has to be retried is refused with the same error, for as long as the log waits for the retry.

Each connection has its own: batches of another connection do not follow these.
"""

from __future__ import annotations

import struct
from collections import deque
from typing import TYPE_CHECKING, Final

from barnabas.model.errors import ApiError, NotEnoughReplicas, NotLeaderOrFollower, StorageFailed
from barnabas.protocol.records.batch import HEADER_SIZE

if TYPE_CHECKING:
    from barnabas.protocol.messages.produce import Topic
    from barnabas.storage.log.log import Log

RETRIABLE: Final = (NotEnoughReplicas, NotLeaderOrFollower, StorageFailed)
"""Errors after which every producer sends the same batch again."""
MAX_IN_FLIGHT: Final = 8
"""More batches than an idempotent producer has in flight in a partition (5)."""
MAX_PRODUCERS: Final = 1_000
"""The most pairs of producer and partition that one connection remembers; the oldest are forgotten."""
_PRODUCER: Final = struct.Struct(">qhi")
_PRODUCER_AT: Final = 43


class RetriedBatches:
    """The batches that the producers of one connection have to retry."""

    __slots__ = ("_batches",)

    def __init__(self) -> None:
        self._batches: dict[tuple[Topic, int, int, int], deque[tuple[int, type[ApiError], str]]] = {}
        """Sequence numbers and errors, by partition, producer and epoch.

        The class and text of an error, not the error: its traceback would keep the request in memory.
        """

    def note(self, topic: Topic, index: int, records: bytes | memoryview, error: ApiError) -> None:
        """A batch was refused: remember it if the producer will retry it."""
        if not isinstance(error, RETRIABLE) or len(records) < HEADER_SIZE:
            return
        producer_id, epoch, sequence = _PRODUCER.unpack_from(records, _PRODUCER_AT)
        if producer_id < 0:
            return
        known = self._batches
        batches = known.setdefault((topic, index, producer_id, epoch), deque(maxlen=MAX_IN_FLIGHT))
        batches.append((sequence, type(error), str(error)))
        if len(known) > MAX_PRODUCERS:
            del known[next(iter(known))]

    def reason(self, topic: Topic, index: int, records: bytes | memoryview, log: Log) -> ApiError | None:
        """The error of the batch that an out-of-order batch follows, if that has to be retried and is still missing."""
        producer_id, epoch, _ = _PRODUCER.unpack_from(records, _PRODUCER_AT)
        noted = self._batches.get((topic, index, producer_id, epoch), ())
        return next(
            (kind(text) for sequence, kind, text in noted if log.producers.expects(producer_id, epoch, sequence)), None
        )
