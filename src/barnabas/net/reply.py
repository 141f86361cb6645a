"""What a request's handler gives the connection that brought the request.

An answer is None (no response: acks=0), bytes, a list of bytes and file slices, a `Parked` answer that comes later, or
HANG_UP. A parked answer keeps its place: responses leave in the order in which their requests came.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum
from typing import Final, Protocol, TypeAlias


class LeasedFile(Protocol):
    """A file that stays open while someone holds a lease on it."""

    @property
    def revoked(self) -> bool:
        """Whether the file was truncated after this handle was given out."""
        ...

    @property
    def fd(self) -> int:
        """The descriptor; valid while the lease is held."""
        ...

    def release(self) -> None:
        """Give a lease back."""
        ...


class Slice(Protocol):
    """Bytes of a file that are sent without being read; whoever holds the slice holds a lease on its file."""

    @property
    def file(self) -> LeasedFile:
        """Where they are."""
        ...

    @property
    def position(self) -> int:
        """The first byte."""
        ...

    @property
    def length(self) -> int:
        """How many."""
        ...

    @property
    def warm(self) -> bool:
        """Whether they are known to be in memory."""
        ...


Part: TypeAlias = "bytes | Slice"


class HangUp(Enum):
    """The one value below, as a type."""

    HANG_UP = "close the connection once what was answered so far has been sent"


HANG_UP: Final = HangUp.HANG_UP


class Parked:
    """An answer that comes later.

    `overtakable`: the request has taken effect (a Produce that is appended and waits for replicas), so the next request
    of its connection may start; its response still waits for this one.
    """

    __slots__ = ("abandoned", "answer", "notify", "on_abandon", "overtakable", "when_answered")

    def __init__(self, overtakable: bool = False, on_abandon: Callable[[], object] | None = None) -> None:
        self.overtakable = overtakable
        self.on_abandon = on_abandon
        """Called if the client leaves first; without it there is work under way, which the next request must await."""
        self.answer: Answer | Parked = UNRESOLVED
        """What it is resolved with; until then a value that is no answer."""
        self.notify: Callable[[], None] | None = None
        """Set by the connection: it is resolved now, or may be overtaken or abandoned now."""
        self.abandoned = False
        self.when_answered: Callable[[], object] | None = None
        """Called when its turn has come and its response is about to be sent."""

    @property
    def resolved(self) -> bool:
        """Whether the answer is there."""
        return self.answer is not UNRESOLVED

    @property
    def may_be_overtaken(self) -> bool:
        """Whether the client's next request may start before this one is answered: it took effect, or only waits."""
        return self.overtakable or self.on_abandon is not None or self.resolved

    def resolve(self, answer: Answer) -> None:
        """Give the answer; nothing happens if the connection has ended.

        As in `abandon`, whoever waited is let go of: handlers know what they parked, and it would know them.
        """
        if self.abandoned:
            release(answer)
            return
        self.answer = answer
        notify, self.notify, self.on_abandon = self.notify, None, None
        if notify is not None:
            notify()

    def follow(self, answer: Answer | Parked) -> None:
        """Give this answer, or whatever another parked one becomes."""
        if isinstance(answer, Parked):
            if not answer.resolved:
                answer.notify = lambda: self.follow(answer)
                if self.abandoned:
                    answer.abandon()
                elif answer.may_be_overtaken:
                    self.on_abandon = answer.abandon
                    self.overtakable = self.overtakable or answer.overtakable
                    if self.notify is not None:
                        self.notify()
                return
            answer = answer.answer
            assert not isinstance(answer, Parked)
        self.resolve(answer)

    def abandon(self) -> None:
        """The connection has ended: nobody waits any more. A second time changes nothing.

        It lets go of the connection and of whom it would have to tell: connections live long, and a cycle would keep
        them where the collector does not look any more (`broker/collector`).
        """
        if self.abandoned:
            return
        self.abandoned = True
        on_abandon, self.on_abandon = self.on_abandon, None
        self.notify = self.when_answered = None
        if self.resolved:
            assert not isinstance(self.answer, Parked)
            release(self.answer)
        elif on_abandon is not None:
            on_abandon()


UNRESOLVED: Final = Parked.__new__(Parked)
"""The answer of all that have none yet: were each its own, each would be a cycle, left to the collector."""

Answer: TypeAlias = "bytes | Sequence[Part] | HangUp | None"


def release(answer: Answer) -> None:
    """Give back the leases of an answer that will not be sent."""
    if isinstance(answer, Sequence) and not isinstance(answer, bytes):
        for part in answer:
            if not isinstance(part, bytes):
                part.file.release()
