"""What a share partition is told of records, and the runs in which it remembers them."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final, NamedTuple

from barnabas.machines.shares.state_batches import DeliveryState
from barnabas.protocol.acknowledgements import Acknowledgement
from barnabas.protocol.dead_letters import GivenUp

NOBODY: Final = ""
FEWEST_THROTTLED: Final = 2
"""Deliveries from which on records may be delivered with fewer others, at the least."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SharePartitionSettings:
    """What holds for a share partition: of its group, or of the broker where the group says nothing."""

    lock_ms: int = 30_000
    """share.record.lock.duration.ms"""
    max_deliveries: int = 5
    """share.delivery.count.limit"""
    max_locks: int = 2000
    """share.partition.max.record.locks"""
    has_dead_letters: bool = False
    """Whether errors.deadletterqueue.topic.name names a topic: then records are archiving before they are archived."""

    @property
    def throttled_from(self) -> int:
        """The delivery count from which on a record is delivered with fewer others."""
        return max(FEWEST_THROTTLED, -(-self.max_deliveries // 2))


class AcknowledgementBatch(NamedTuple):
    """Records and what a member says of them: one type for all, or one for each."""

    first_offset: int
    last_offset: int
    types: tuple[int, ...]

    def type_of(self, offset: int) -> Acknowledgement:
        """What is said of one record."""
        return Acknowledgement(self.types[0] if len(self.types) == 1 else self.types[offset - self.first_offset])


class LogBatch(NamedTuple):
    """A batch that was read from the log."""

    first_offset: int
    last_offset: int
    is_aborted: bool = False
    """Whether its transaction was aborted, and the group reads only what is committed."""


class AcquireLimits(NamedTuple):
    """How much a fetch may acquire."""

    max_records: int
    batch_size: int = 500
    """How many records the member likes to have in a batch that it acknowledges."""
    strict: bool = False
    """Whether `max_records` holds for every record (record_limit); otherwise batches of the log are not divided."""


class Acquired(NamedTuple):
    """Records that were acquired, with the number of their deliveries."""

    first_offset: int
    last_offset: int
    delivery_count: int


class LetterProgress(Enum):
    """How far the dead letters of records that are archiving are."""

    DECIDED = "nothing is stored"
    NOTED = "it is stored that they are archiving"
    WRITTEN = "their dead letters are stored"


class DeadLetters(NamedTuple):
    """Records that are archiving, and what their dead letters say."""

    first_offset: int
    last_offset: int
    delivery_count: int
    reason: GivenUp
    progress: LetterProgress


@dataclass(slots=True)
class RecordRun:
    """Records from the first offset to the last (inclusive) that have everything in common."""

    first: int
    last: int
    state: DeliveryState
    deliveries: int
    batch: tuple[int, int]
    """First offset and number of the records that were acquired together with these when they were first delivered."""
    member: str = NOBODY
    deadline_ms: int = 0
    """When the lock ends, in monotonic time."""
    write: int = 0
    """The number of the write that is to change it; 0 if there is none."""
    next_state: DeliveryState = DeliveryState.AVAILABLE
    """What that write makes of it."""
    reason: GivenUp = GivenUp.REJECTED
    progress: LetterProgress = LetterProgress.DECIDED
    """Of records that are archiving."""

    def cut_off(self, at: int) -> RecordRun:
        """End before an offset within it; gives the rest, which is the same but for where it begins."""
        rest = RecordRun(
            at,
            self.last,
            self.state,
            self.deliveries,
            self.batch,
            self.member,
            self.deadline_ms,
            self.write,
            self.next_state,
            self.reason,
            self.progress,
        )
        self.last = at - 1
        return rest

    @property
    def size(self) -> int:
        """How many records it has."""
        return self.last - self.first + 1

    @property
    def is_free(self) -> bool:
        """Whether it can be delivered."""
        return self.state is DeliveryState.AVAILABLE and not self.write

    @property
    def is_done(self) -> bool:
        """Whether nothing can become of it any more."""
        return self.state.is_final and not self.write

    @property
    def is_complete(self) -> bool:
        """Whether nothing can become of it any more, once what is being written is stored."""
        return (self.next_state if self.write else self.state).is_final
