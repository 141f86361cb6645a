"""The one contract of all machines: what comes out of a decision.

A machine is asked (`handle`, or `expire` for a timer) and answers with an `Outcome`; it does nothing by itself. Its
shell makes the changes durable, tells the machine by `replay`, and only then lets replies and sends out: so nobody
hears of what a crash could take back, and a machine that replays what was stored is the machine that decided it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

Change = TypeVar("Change")
Asker = TypeVar("Asker")
Answer = TypeVar("Answer")


class Timer(NamedTuple):
    """Ask again by `expire(key)` at a time; one timer per key, and `at_ms` None cancels it."""

    key: Hashable
    at_ms: int | None


@dataclass(slots=True, kw_only=True)
class Outcome(Generic[Change, Asker, Answer]):
    """A decision. Nobody changes it; it is not frozen because one is made for each request, and that costs more so."""

    changes: tuple[Change, ...] = ()
    """What becomes true once it is stored: records of a coordinator's log, conditional writes of the controller."""
    replies: tuple[tuple[Asker, Answer], ...] = ()
    """Answers, each with whoever waits for it: one event may answer many."""
    sends: tuple[object, ...] = ()
    """Messages to others, of the machine's own kinds."""
    timers: tuple[Timer, ...] = ()
    is_divisible: bool = False
    """Whether each change may be stored without the others; else it is all of them or none."""
    otherwise: Callable[[], Outcome[Change, Asker, Answer]] | None = None
    """What is decided instead if the changes are more than can be stored at once; whoever was to be answered is told of
    that. None: the machine is changed already, and only reading what is stored undoes it."""


def as_before() -> Outcome[Any, Any, Any]:
    """For `otherwise`, where deciding changed nothing: there is nothing to undo."""
    return Outcome()


class Draft(Generic[Change, Asker, Answer]):
    """A decision in the making: rules that call each other add to one draft."""

    __slots__ = ("changes", "otherwise", "replies", "sends", "timers")

    def __init__(self) -> None:
        self.changes: list[Change] = []
        self.replies: list[tuple[Asker, Answer]] = []
        self.sends: list[object] = []
        self.timers: list[Timer] = []
        self.otherwise: Callable[[], Outcome[Change, Asker, Answer]] | None = None

    def reply(self, asker: Asker, answer: Answer) -> None:
        """Answer somebody."""
        self.replies.append((asker, answer))

    def set_timer(self, key: Hashable, at_ms: int) -> None:
        """Ask again at a time, instead of at any other time set for this key."""
        self.timers.append(Timer(key, at_ms))

    def cancel_timer(self, key: Hashable) -> None:
        """Do not ask again for this key."""
        self.timers.append(Timer(key, None))

    def outcome(self) -> Outcome[Change, Asker, Answer]:
        """The decision as it stands."""
        return Outcome(
            changes=tuple(self.changes),
            replies=tuple(self.replies),
            sends=tuple(self.sends),
            timers=tuple(self.timers),
            otherwise=self.otherwise,
        )
