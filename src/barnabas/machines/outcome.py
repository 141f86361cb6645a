"""The one contract of all machines: what they are asked, and what comes out of a decision.

A machine is asked (`handle`, or `expire` for a timer) and returns an `Outcome`; it does nothing by itself. Its shell
stores the changes, hands them to the machine by `replay`, and only then sends replies and messages. So no client sees
what a crash could undo, and a machine that replays the stored changes is in the state of the machine that decided them.

An answer is checked where it is given: `Draft.reply` takes an `Asker` of some response, and that response. After that
the two travel together, and nobody has to know which response it is.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, Never, Protocol, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    from barnabas.model.errors import ApiError, ErrorCode

Change = TypeVar("Change")
Response = TypeVar("Response")
Response_contra = TypeVar("Response_contra", contravariant=True)
Change_co = TypeVar("Change_co", covariant=True)
Recipient_co = TypeVar("Recipient_co", covariant=True)
Answer_co = TypeVar("Answer_co", covariant=True)
Record_contra = TypeVar("Record_contra", contravariant=True)
TimerKey_contra = TypeVar("TimerKey_contra", contravariant=True)


class Timer(NamedTuple):
    """Ask the machine again by `expire(key)` at a time. A key has one timer. `at_ms` None cancels it."""

    key: Hashable
    at_ms: int | None


class Asker(Generic[Response_contra]):
    """Who asked a coordinator, and is answered with a response of this type, now or later.

    Machines only name askers in their outcomes; the shell answers them. Two askers are the same only if they are one
    object.
    """

    __slots__ = ()

    client_id: str
    """As the request's header says; "" if it does not."""
    client_host: str
    """The client's address, as Kafka writes it: with a slash before it."""
    version: int
    """The version of the API that the request came in."""
    may_see: Callable[[str], bool] | None = None
    """Whether the client may know of a topic; None if of all."""

    def answer(self, response: object) -> None:
        """Give the response that a machine paired with this asker."""
        raise NotImplementedError

    def fail(self, error: ApiError) -> None:
        """Give an error instead of a response."""
        raise NotImplementedError


@dataclass(slots=True, kw_only=True)
class Outcome(Generic[Change_co, Recipient_co, Answer_co]):
    """A decision. Nobody changes it. It is not frozen: one is made for each request, and that would cost more."""

    changes: tuple[Change_co, ...] = ()
    """What becomes true once it is stored: records of a coordinator's log, conditional writes of the controller."""
    replies: tuple[tuple[Recipient_co, Answer_co], ...] = ()
    """Answers, each with the one who waits for it: one event may answer many."""
    sends: tuple[object, ...] = ()
    """Messages to others, of the machine's own kinds."""
    timers: tuple[Timer, ...] = ()
    is_divisible: bool = False
    """Whether each change may be stored without the others; otherwise all of them are stored, or none."""
    otherwise: Callable[[], Outcome[Change_co, Recipient_co, Answer_co]] | None = None
    """What is decided instead if the changes are too large to be stored at once; those who wait get an error.

    None: the machine is changed already, and has to be loaded from its log again.
    """


CoordinatorOutcome = Outcome[Change_co, Asker[Never], object]
"""A decision of a coordinator. Each answer is of the type that its asker waits for; see `Draft.reply`."""


def as_before() -> Outcome[Never, Never, Never]:
    """For `otherwise`, where deciding changed nothing: there is nothing to undo."""
    return Outcome()


class OneRecord(NamedTuple):
    """A decision of one record, which is packed already, and of the answer to the request that led to it.

    It comes to what its `outcome` comes to, with less work. Most decisions of a busy coordinator are of this kind:
    commits of an offset, and steps of members into another epoch.
    """

    pair: tuple[bytes, bytes]
    """Key and value of the record."""
    change: Any
    """What the machine's `replay` takes."""
    replay: Callable[[Any], object]
    """The same as the machine's `replay`, for this change in this moment."""
    response: object
    timer: Timer | None

    def outcome(self, asker: Asker[Any]) -> CoordinatorOutcome[Any]:
        """The decision as all others are."""
        timers = () if self.timer is None else (self.timer,)
        return Outcome(changes=(self.change,), replies=((asker, self.response),), timers=timers, otherwise=as_before)


def answer(asker: Asker[Response], response: Response | ApiError) -> CoordinatorOutcome[Never]:
    """A decision that answers one asker and changes nothing."""
    return Outcome(replies=((asker, response),))


class Draft(Generic[Change]):
    """A coordinator's decision in the making: rules that call each other add to one draft."""

    __slots__ = ("changes", "otherwise", "replies", "sends", "timers")

    def __init__(self) -> None:
        self.changes: list[Change] = []
        self.replies: list[tuple[Asker[Never], object]] = []
        self.sends: list[object] = []
        self.timers: list[Timer] = []
        self.otherwise: Callable[[], CoordinatorOutcome[Change]] | None = None

    def reply(self, asker: Asker[Response], response: Response | ApiError) -> None:
        """Answer one asker, with a response or with an error that its API words."""
        self.replies.append((asker, response))

    def set_timer(self, key: Hashable, at_ms: int) -> None:
        """Ask again at a time, instead of at any other time set for this key."""
        self.timers.append(Timer(key, at_ms))

    def cancel_timer(self, key: Hashable) -> None:
        """Do not ask again for this key."""
        self.timers.append(Timer(key, None))

    def outcome(self) -> CoordinatorOutcome[Change]:
        """The decision as it stands."""
        return Outcome(
            changes=tuple(self.changes),
            replies=tuple(self.replies),
            sends=tuple(self.sends),
            timers=tuple(self.timers),
            otherwise=self.otherwise,
        )


class Replayed(Protocol):
    """What a coordinator's log is replayed into."""

    def replay_bytes(self, key: bytes, value: bytes | None, producer_id: int) -> None:
        """Apply one record; `producer_id` is that of the transaction it belongs to, or -1."""
        ...

    def end_transaction(self, producer_id: int, commit: bool) -> None:
        """Apply the marker that ends a producer's transaction."""
        ...


class Machine(Replayed, Protocol[Record_contra, TimerKey_contra]):
    """What a coordinator's machine is asked by its shell, besides requests."""

    def encode(self, record: Record_contra, /) -> tuple[bytes, bytes | None]:
        """Key and value of a record."""
        ...

    def replay(self, record: Record_contra, /) -> None:
        """Apply a record that is stored."""
        ...

    def expire(self, key: TimerKey_contra, now_ms: int, /) -> CoordinatorOutcome[object]:
        """A timer is due."""
        ...

    def loaded(self, now_ms: int, /) -> CoordinatorOutcome[object]:
        """The whole log was replayed."""
        ...

    def abandon(self, code: ErrorCode, /) -> CoordinatorOutcome[object]:
        """The machine is not used any more: answer everyone who waits in it."""
        ...
