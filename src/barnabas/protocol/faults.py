"""What a test asks of a broker over its private socket: one line of JSON each way.

    {"do": "add", "kind": "fail", "api": "PRODUCE", "error": "NOT_LEADER_OR_FOLLOWER", "times": 2}
    {"answer": 1}                               the fault's number
    {"error": "there is no API PRODUCES ..."}   why not

The broker checks what it is asked, so that a program in another language is told the same as Python's.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal, cast

from barnabas.model.errors import BarnabasError, ErrorCode
from barnabas.protocol.apis import ApiKey

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

EVERY_API: Final = "*"
LINE_BYTES: Final = 1 << 16
"""The longest line."""

Kind = Literal["fail", "delay", "drop"]
When = Literal["before", "after"]
"""Before a request takes effect, or when it has, instead of its answer."""


class InvalidFault(BarnabasError):
    """A fault that cannot be set, or something else that cannot be done; the message says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultRule:
    """What happens to requests, and to which: those to which everything applies that is not None."""

    kind: Kind
    api: ApiKey | None
    error: ErrorCode = ErrorCode.none
    """What the request is answered with (fail)."""
    seconds: float = 0.0
    """How long it waits (delay)."""
    when: When = "before"
    times: int | None = None
    """How often at most."""
    topic: str | None = None
    group: str | None = None
    client_id: str | None = None


def fault_from(words: Mapping[str, Any]) -> FaultRule:
    """A fault as it stands on the line; raises InvalidFault."""
    kind = words.get("kind")
    if kind not in ("fail", "delay", "drop"):
        raise InvalidFault(f"unknown kind of fault {kind!r}: it should be fail, delay or drop")
    when = words.get("when", "before")
    if when not in ("before", "after"):
        raise InvalidFault(f"when is {when!r}: it should be before or after (the request takes effect)")
    times, seconds = words.get("times"), words.get("seconds", 0.0)
    if times is not None and (not isinstance(times, int) or times < 1):
        raise InvalidFault(f"times is {times!r}: it should be at least 1, or None for no limit")
    if not isinstance(seconds, int | float) or seconds < 0:
        raise InvalidFault(f"seconds is {seconds!r}: it should be a number that is not negative")
    return FaultRule(
        kind=cast("Kind", kind),
        api=api_named(words.get("api")),
        error=error_named(words.get("error")) if kind == "fail" else ErrorCode.none,
        seconds=float(seconds),
        when=cast("When", when),
        times=times,
        topic=_text(words, "topic"),
        group=_text(words, "group"),
        client_id=_text(words, "client_id"),
    )


def api_named(name: object) -> ApiKey | None:
    """An API by Kafka's name for it, as PRODUCE, Produce or INIT_PRODUCER_ID; None for `*`, which is every API."""
    if name == EVERY_API:
        return None
    for key in ApiKey:
        if _plain(key.name) == _plain(name):
            return key
    raise InvalidFault(f"there is no API {name}{_guess(name, (key.name for key in ApiKey))}")


def error_named(name: object) -> ErrorCode:
    """An error by its name or number; the code for "no error" is none."""
    for code in ErrorCode:
        if code is not ErrorCode.none and (name == code.value or _plain(name) == _plain(code.name)):
            return code
    raise InvalidFault(f"there is no error {name}{_guess(name, (code.name.upper() for code in ErrorCode))}")


def _text(words: Mapping[str, Any], name: str) -> str | None:
    value = words.get(name)
    if value is not None and not isinstance(value, str):
        raise InvalidFault(f"{name} is {value!r}: it should be text")
    return value


def _plain(name: object) -> str:
    return str(name).replace("_", "").lower()


def _guess(name: object, known: Iterable[str]) -> str:
    from difflib import get_close_matches

    close = get_close_matches(str(name).upper(), list(known), n=1)
    return f": did you mean {close[0]}?" if close else " in Kafka"
