"""Batches that a client was told to send again, and what that means for those that it had sent behind them.

Producers have several batches under way. If one is turned away for a reason that passes (too few replicas are in sync,
or the leader is not known yet), and the reason has passed when the next one is looked at, then that one is out of order
through no fault of its producer. Told so, librdkafka begins a new epoch, in which it sends again whatever it has no
answer for, in all partitions: what was stored already is stored twice. So a batch that stands behind one which was
turned away is turned away like that one, for as long as the log waits for it.

Each connection has its own: batches that come over another one are not behind these.
"""

from __future__ import annotations

import struct
from collections import deque
from typing import TYPE_CHECKING, Final

from barnabas.model.errors import ApiError, NotEnoughReplicas, NotLeaderOrFollower, StorageFailed
from barnabas.protocol.records.batch import HEADER_SIZE

if TYPE_CHECKING:
    from barnabas.protocol.produce import Topic
    from barnabas.storage.log import Log

PASSING: Final = (NotEnoughReplicas, NotLeaderOrFollower, StorageFailed)
"""Refusals upon which every producer sends the same batch again."""
UNDER_WAY: Final = 8
"""More batches than an idempotent producer has under way in a partition."""
MOST_PRODUCERS: Final = 1_000
"""In partitions, of one connection; the oldest are forgotten."""
_PRODUCER: Final = struct.Struct(">qhi")
_PRODUCER_AT: Final = 43


class TurnedAway:
    """What the producers of one connection have to send again."""

    __slots__ = ("_batches",)

    def __init__(self) -> None:
        self._batches: dict[tuple[Topic, int, int, int], deque[tuple[int, type[ApiError], str]]] = {}
        """Sequence numbers and reasons, by partition, producer and epoch. An error itself would keep its request."""

    def note(self, topic: Topic, index: int, records: bytes | memoryview, error: ApiError) -> None:
        """A batch was turned away."""
        if not isinstance(error, PASSING) or len(records) < HEADER_SIZE:
            return
        producer_id, epoch, sequence = _PRODUCER.unpack_from(records, _PRODUCER_AT)
        if producer_id < 0:
            return
        known = self._batches
        batches = known.setdefault((topic, index, producer_id, epoch), deque(maxlen=UNDER_WAY))
        batches.append((sequence, type(error), str(error)))
        if len(known) > MOST_PRODUCERS:
            del known[next(iter(known))]

    def reason(self, topic: Topic, index: int, records: bytes | memoryview, log: Log) -> ApiError | None:
        """Why the batch before one that is out of order was turned away, if it was and is still missing."""
        producer_id, epoch, _ = _PRODUCER.unpack_from(records, _PRODUCER_AT)
        noted = self._batches.get((topic, index, producer_id, epoch), ())
        return next((kind(told) for sequence, kind, told in noted if log.expects(producer_id, epoch, sequence)), None)
