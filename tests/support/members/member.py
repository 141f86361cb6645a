"""A member of a consumer group, whatever client library it uses.

A member is a thread that polls without pause, as clients must; what a test asks of it runs in that same thread, because
two of the libraries allow no other. It keeps what it read and what it was given and what was taken from it.
"""

from __future__ import annotations

import concurrent.futures
import queue
import threading
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    Answer = TypeVar("Answer")

TIMEOUT_SECONDS: Final = 60.0
POLL_SECONDS: Final = 0.05


class Place(NamedTuple):
    """A partition of a topic."""

    topic: str
    partition: int


def places_of(topic: str, partitions: int) -> frozenset[Place]:
    """All partitions of a topic."""
    return frozenset(Place(topic, number) for number in range(partitions))


class Read(NamedTuple):
    """A record as a member got it."""

    place: Place
    offset: int
    value: bytes | None


class Committed(NamedTuple):
    """A committed offset as a client shows it."""

    offset: int
    metadata: str = ""
    leader_epoch: int | None = None


class Change(NamedTuple):
    """Partitions that were given to a member, or taken from it."""

    given: bool
    places: frozenset[Place]


@dataclass(frozen=True, slots=True)
class Joining:
    """How a member joins: subscribed to topics or a pattern, or assigned to partitions by its own choice."""

    bootstrap: str
    group: str
    topics: tuple[str, ...] = ()
    pattern: str = ""
    assigned: tuple[Place, ...] = ()
    assignors: tuple[str, ...] = ("range",)
    instance: str | None = None
    session_ms: int = 20_000
    commit_every_ms: int = 0
    """Commit by itself so often, and when it leaves; 0 is never."""
    reset: str = "earliest"
    poll_interval_ms: int = 60_000


class Member(threading.Thread, ABC):
    """Polls from its start until it leaves, or until its client says that it cannot go on (`failure`)."""

    def __init__(self, joining: Joining) -> None:
        super().__init__(name=f"member of {joining.group}", daemon=True)
        self.joining = joining
        self.read: list[Read] = []
        self.changes: list[Change] = []
        self.owned: frozenset[Place] = frozenset()
        self.failure: BaseException | None = None
        self.is_over = False
        """Whether its client is closed."""
        self._commands: queue.SimpleQueue[tuple[Callable[[], Any], concurrent.futures.Future[Any]]] = (
            queue.SimpleQueue()
        )
        self._leaving = threading.Event()
        self.start()

    @abstractmethod
    def open(self) -> None:
        """Make the client and let it join."""

    @abstractmethod
    def poll(self) -> list[Read]:
        """What came within a moment."""

    @abstractmethod
    def assignment(self) -> Iterable[Place]:
        """What the client holds now."""

    @abstractmethod
    def commit_these(self, offsets: Mapping[Place, Committed]) -> None:
        """Commit, and wait for the answer."""

    @abstractmethod
    def fetch_committed(self, place: Place) -> Committed | None:
        """What the group committed."""

    @abstractmethod
    def go_to(self, place: Place, offset: int) -> None:
        """Read on from this offset."""

    @abstractmethod
    def close(self) -> None:
        """Leave."""

    def run(self) -> None:
        try:
            self.open()
            try:
                while not self._leaving.is_set():
                    self._obey()
                    self.received(self.poll())
                    self.owned = frozenset(self.assignment())
            finally:
                self.close()
        except Exception as error:  # shown by whoever waits for this member
            self.failure = error
        self.owned = frozenset()
        self.is_over = True

    def received(self, reads: list[Read]) -> None:
        """Take what came."""
        self.read += reads

    def _obey(self) -> None:
        while not self._commands.empty():
            command, answer = self._commands.get()
            try:
                answer.set_result(command())
            except Exception as error:  # it belongs to whoever asked
                answer.set_exception(error)

    def do(self, command: Callable[[], Answer]) -> Answer:
        """Run something in the member's thread, between two polls."""
        answer: concurrent.futures.Future[Answer] = concurrent.futures.Future()
        self._commands.put((command, answer))
        return answer.result(TIMEOUT_SECONDS)

    def commit(self, offsets: Mapping[Place, Committed] | None = None) -> None:
        """Commit these, or everything that was read."""
        self.do(lambda: self.commit_these(self.positions() if offsets is None else offsets))

    def committed(self, place: Place) -> Committed | None:
        """What the group committed for a partition."""
        return self.do(lambda: self.fetch_committed(place))

    def seek(self, place: Place, offset: int) -> None:
        """Read on from this offset; what was read before is forgotten."""

        def go() -> None:
            self.go_to(place, offset)
            self.read.clear()

        self.do(go)

    def positions(self) -> dict[Place, Committed]:
        """The offsets behind what was read."""
        return {read.place: Committed(read.offset + 1) for read in self.read}

    def values(self) -> list[bytes | None]:
        """What was read, in its order."""
        return [read.value for read in list(self.read)]

    def taken(self) -> frozenset[Place]:
        """All that was ever taken from it."""
        return frozenset(place for change in list(self.changes) if not change.given for place in change.places)

    def begin_to_leave(self) -> None:
        """Close the client when the present poll is over."""
        self._leaving.set()

    def leave(self) -> None:
        """Close the client and wait for it."""
        self.begin_to_leave()
        self.join(TIMEOUT_SECONDS)
        assert not self.is_alive(), f"{self.name} did not end within {TIMEOUT_SECONDS:g} s"

    def changed(self, given: bool, places: Iterable[Any]) -> None:
        """Note what the client says it was given or lost."""
        self.changes.append(Change(given, frozenset(Place(place.topic, place.partition) for place in places)))
