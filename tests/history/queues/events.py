"""What happened to the messages of a queue, as its workers and a reader of the stored states saw it.

Times are seconds of one clock that never goes back. What a client asked for happened between `asked_at`, when it sent
the request, and `came_at`, when it had the answer.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

AVAILABLE, ACQUIRED, ACKNOWLEDGED, ARCHIVING, ARCHIVED = range(5)
"""The delivery states of Kafka's protocol."""
NO_EPOCH = -1


class Place(NamedTuple):
    """Where a message is."""

    partition: int
    offset: int


class Kind(Enum):
    """What a worker says of a message."""

    ACCEPT = "accept"
    RELEASE = "release"
    REJECT = "reject"

    @property
    def is_final(self) -> bool:
        """Whether nobody gets the message after it."""
        return self is not Kind.RELEASE


class Fate(Enum):
    """What a worker was told of an acknowledgement."""

    STORED = "stored"
    """It was answered without an error."""
    UNKNOWN = "unknown"
    """It may be stored or not: there was no answer, or one of a broker that does not know."""
    REFUSED = "refused"
    """It was not stored, and never will be."""


class Delivery(NamedTuple):
    """A message came to a worker."""

    member: str
    place: Place
    value: str
    deliveries: int
    """So far, with this one."""
    asked_at: float
    came_at: float
    session: str = ""
    """The share session that it came in."""
    epoch: int = NO_EPOCH
    """A number for the time in which the broker that delivered it leads without a break; locks last no longer."""
    is_current: bool = False
    """Whether it is known to come from the leader. A broker that was replaced may deliver for a moment what is done:
    it asks nobody before it delivers, but cannot store any acknowledgement."""

    def __str__(self) -> str:
        return f"delivery {self.deliveries} to {self.member} at {self.asked_at:.3f} to {self.came_at:.3f}"


class Acknowledgement(NamedTuple):
    """A worker said what became of a message."""

    member: str
    place: Place
    kind: Kind
    deliveries: int
    """Those of the message, when it came."""
    fate: Fate
    asked_at: float
    came_at: float
    session: str = ""

    def __str__(self) -> str:
        what = f"{self.kind.value} of delivery {self.deliveries} by {self.member}"
        return f"{what} at {self.asked_at:.3f}: {self.fate.value}"


class Unheard(NamedTuple):
    """A fetch had no answer: whatever it was to bring counts as delivered."""

    partition: int
    asked_at: float


class StateRun(NamedTuple):
    """Messages from the first offset to the last with one stored state."""

    first: int
    last: int
    state: int
    deliveries: int


class Observation(NamedTuple):
    """What is stored of a partition."""

    partition: int
    start: int
    """All messages before it are done with."""
    runs: tuple[StateRun, ...]
    asked_at: float
    came_at: float
    is_current: bool = True
    """Whether it is known to come from the coordinator: one that was replaced tells what it knew."""

    def state_of(self, offset: int) -> tuple[int, int]:
        """State and delivery count of a message that is not before the start."""
        for run in self.runs:
            if run.first <= offset <= run.last:
                return run.state, run.deliveries
        return AVAILABLE, 0

    def is_done(self, offset: int) -> bool:
        """Whether nothing is to be done for a message any more."""
        return offset < self.start or self.state_of(offset)[0] in (ACKNOWLEDGED, ARCHIVED)

    def is_decided(self, offset: int) -> bool:
        """Whether a message will never be delivered again, though its dead letter may be missing yet."""
        return self.is_done(offset) or self.state_of(offset)[0] == ARCHIVING


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueHistory:
    """Everything that a queue is judged by."""

    messages: Mapping[Place, str]
    """What the topic has in the end: all of it has to be done."""
    others: Collection[str] = ()
    """Values that may be delivered though they are not there: of aborted transactions, if the group reads them."""
    deliveries: Sequence[Delivery]
    acknowledgements: Sequence[Acknowledgement]
    observations: Sequence[Observation]
    """In order. The last one of each partition was asked for when everything had to be done."""
    unheard: Sequence[Unheard] = ()
    sent_at: Mapping[Place, float] = field(default_factory=dict)
    """When messages were sent, where that is known."""
    sessions: Mapping[str, float] = field(default_factory=dict)
    """When each share session was last seen to go on."""
    lock_seconds: float
    delivery_limit: int
    dead_letters: Collection[Place] | None = None
    """The messages that have a dead letter; None where the queue keeps none."""
