"""What a configuration key is: its type, its default, what it takes, and how its text is read and written.

Text is read and written as Kafka's ConfigDef does it, and complaints have Kafka's words, because tools and tests of
users look for them. `Key.parse` is the only way from text to a value, so every value of a configuration was checked.
"""

from __future__ import annotations

import math
import re
from enum import Enum, IntEnum
from typing import Final, NamedTuple, TypeAlias

from barnabas.model.errors import InvalidConfig

Value: TypeAlias = bool | int | float | str | tuple[str, ...] | None


class Type(IntEnum):
    """The types of values, numbered as DescribeConfigs numbers them."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9


class Importance(Enum):
    """How important a key is to a user, in Kafka's words."""

    HIGH = "high"
    MEDIUM = "medium"
    LOW = "low"


class Mode(Enum):
    """Whether a broker key may change while brokers run, and for whom."""

    READ_ONLY = "read-only"
    PER_BROKER = "per-broker"
    CLUSTER_WIDE = "cluster-wide"


class Support(Enum):
    """Whether a key has an effect in Barnabas, and which Kafka has it."""

    HONOURED = "honoured"
    """It has an effect."""
    IGNORED = "ignored"
    """A key of Kafka 4.3 that is accepted and has no effect."""
    RETIRED = "retired"
    """A key of Kafka 3.9 only that is accepted and has no effect."""
    OWN = "own"
    """A key that Kafka does not have."""


class Range(NamedTuple):
    """A number between two bounds, both allowed."""

    low: float | None = None
    high: float | None = None

    def complaint(self, value: Value) -> str | None:
        """Why the value is refused, or None."""
        if not isinstance(value, int | float):
            return None
        if self.low is not None and value < self.low:
            return f"Value must be at least {self.low}"
        if self.high is not None and value > self.high:
            return f"Value must be no more than {self.high}"
        return None

    def __str__(self) -> str:
        low = "" if self.low is None else f"{self.low},"
        high = "" if self.high is None else f",{self.high}"
        return f"[{low}...{high}]"


class OneOrRange(NamedTuple):
    """A number between two bounds, or one special number."""

    special: int
    low: int
    high: int

    def complaint(self, value: Value) -> str | None:
        """Why the value is refused, or None."""
        if isinstance(value, int) and (value == self.special or self.low <= value <= self.high):
            return None
        return f"Value must be between {self.low} and {self.high} or equal to {self.special}"

    def __str__(self) -> str:
        return f"[{self.low},...,{self.high}] or {self.special}"


class OneOf(NamedTuple):
    """One of a few words."""

    words: tuple[str, ...]
    any_case: bool = False

    def complaint(self, value: Value) -> str | None:
        """Why the value is refused, or None."""
        if value in self.words or (self.any_case and str(value).upper() in self.words):
            return None
        manner = " (case insensitive)" if self.any_case else ""
        return f"String must be one of{manner}: {', '.join(self.words)}"

    def __str__(self) -> str:
        return f"[{', '.join(self.words)}]"


class NonEmpty(NamedTuple):
    """A string that is not empty."""

    def complaint(self, value: Value) -> str | None:
        """Why the value is refused, or None."""
        return "String must be non-empty" if value == "" else None

    def __str__(self) -> str:
        return "non-empty string"


class Items(NamedTuple):
    """A list without repeated or empty items, perhaps of a few words only."""

    words: tuple[str, ...] = ()
    empty: bool = True
    """Whether the list may be empty."""

    def complaint(self, value: Value) -> str | None:
        """Why the list as a whole is refused, or None; its items are looked at one by one afterwards."""
        if not isinstance(value, tuple):
            return None
        if not value and not self.empty:
            return f"must not be empty. Valid values include: {self}"
        if len(set(value)) != len(value):
            return "values must not be duplicated."
        return None

    def __str__(self) -> str:
        return f"[{', '.join(self.words)}]" if self.words else "any non-empty value"


class ThrottledReplicas(NamedTuple):
    """Replicas to slow down: `*`, or a list of PARTITION:BROKER."""

    def complaint(self, value: Value) -> str | None:
        """Why the value is refused, or None."""
        items = value if isinstance(value, tuple) else ()
        text = ",".join(items).strip()
        if text in ("", "*", ",") or all(re.fullmatch(r"\d+:\d+", item, re.ASCII) for item in items):
            return None
        return (
            "must be the literal '*' or a list of replicas in the following format: "
            "[partitionId]:[brokerId],[partitionId]:[brokerId],..."
        )

    def __str__(self) -> str:
        return "[partitionId]:[brokerId],[partitionId]:[brokerId],..."


class OffsetReset(NamedTuple):
    """Where a share group begins: a word, or so long ago as a duration says."""

    def complaint(self, value: Value) -> str | None:
        """Why the value is refused, or None."""
        if value in ("earliest", "latest"):
            return None
        start, _, duration = str(value).partition(":")
        match = _DURATION.fullmatch(duration)
        if start == "by_duration" and match is not None and duration[-1] not in "PTpt" and "-" not in duration:
            return None
        return (
            f"Invalid value `{value}` for configuration share.auto.offset.reset. The value must be either 'earliest', "
            "'latest' or of the format 'by_duration:<PnDTnHnMn.nS>'."
        )

    def __str__(self) -> str:
        return "[latest, earliest, by_duration:PnDTnHnMn.nS]"


Takes: TypeAlias = Range | OneOrRange | OneOf | NonEmpty | Items | ThrottledReplicas | OffsetReset | None

Row: TypeAlias = tuple[str, Type, Value, Takes, Importance, Mode]
"""A line of the tables of keys."""

_DURATION: Final = re.compile(
    r"\+?P(?:[+-]?\d+D)?(?:T(?:[+-]?\d+H)?(?:[+-]?\d+M)?(?:[+-]?\d+(?:[.,]\d{0,9})?S)?)?", re.IGNORECASE | re.ASCII
)
"""Java's form of ISO 8601."""
_INTEGER: Final = re.compile(r"[+-]?[0-9]+")
_DOUBLE: Final = re.compile(r"([+-]?)(?:(NaN|Infinity)|((?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)[fFdD]?)")
_BITS: Final = {Type.SHORT: 16, Type.INT: 32, Type.LONG: 64}


class Key(NamedTuple):
    """One configuration key."""

    name: str
    type: Type
    default: Value
    takes: Takes
    importance: Importance
    mode: Mode
    support: Support
    doc: str
    hidden: bool = False
    """Shown by DescribeConfigs only when it was set."""

    @property
    def sensitive(self) -> bool:
        """Whether the value is a secret, which is never shown."""
        return self.type is Type.PASSWORD

    def parse(self, text: str) -> Value:
        """The value that `text` stands for; raises InvalidConfig with Kafka's words."""
        value = self.read(text)
        self.check(value)
        return value

    def read(self, text: str) -> Value:
        """The value that `text` stands for, whether or not this key takes it."""
        trimmed = text.strip()
        match self.type:
            case Type.BOOLEAN:
                if trimmed.lower() in ("true", "false"):
                    return trimmed.lower() == "true"
                raise self._invalid(text, "Expected value to be either true or false")
            case Type.INT | Type.SHORT | Type.LONG:
                bound = 1 << (_BITS[self.type] - 1)
                if _INTEGER.fullmatch(trimmed) and len(trimmed) <= 20 and -bound <= (number := int(trimmed)) < bound:
                    return number
                raise self._invalid(text, f"Not a number of type {self.type.name}")
            case Type.DOUBLE:
                if (match := _DOUBLE.fullmatch(trimmed)) is not None:
                    return float(match[1] + (match[2] or match[3]))
                raise self._invalid(text, "Not a number of type DOUBLE")
            case Type.LIST:
                return tuple(item.strip() for item in trimmed.split(",")) if trimmed else ()
            case _:
                return trimmed

    def check(self, value: Value) -> None:
        """Raise InvalidConfig, with Kafka's words, unless this key takes the value."""
        if self.takes is None:
            return
        complaint = self.takes.complaint(value)
        if isinstance(self.takes, Items):
            if complaint is not None:
                raise InvalidConfig(f"Configuration '{self.name}' {complaint}")
            self._check_items(self.takes, value)
        elif isinstance(self.takes, ThrottledReplicas):
            if complaint is not None and isinstance(value, tuple):
                raise self._invalid(f"[{', '.join(value)}]", f"{self.name} {complaint}")
        elif complaint is not None:
            raise self._invalid(self.write(value) or "", complaint)

    def _check_items(self, takes: Items, value: Value) -> None:
        for item in value if isinstance(value, tuple) else ():
            if not item:
                raise InvalidConfig(f"Configuration '{self.name}' values must not be empty.")
            if takes.words and item not in takes.words:
                raise self._invalid(item, f"String must be one of: {', '.join(takes.words)}")

    def _invalid(self, text: str, complaint: str) -> InvalidConfig:
        shown = "[hidden]" if self.sensitive else text
        return InvalidConfig(f"Invalid value {shown} for configuration {self.name}: {complaint}")

    def write(self, value: Value) -> str | None:
        """The text of a value, as Kafka's tools print it."""
        return write_value(value)


def write_value(value: Value) -> str | None:
    """The text of a value, as Kafka's tools print it.

    >>> write_value(True), write_value(0.5), write_value(1e8), write_value(("a", "b"))
    ('true', '0.5', '1.0E8', 'a,b')
    """
    match value:
        case None | str():
            return value
        case bool():
            return "true" if value else "false"
        case tuple():
            return ",".join(value)
        case float():
            return _write_double(value)
        case _:
            return str(value)


def _write_double(value: float) -> str:
    """A number in Java's form: plain between 10**-3 and 10**7, else with one digit before the point and an exponent."""
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    if value == 0 or 1e-3 <= abs(value) < 1e7:
        return repr(value)
    shortest = next(text for n in range(17) if float(text := f"{value:.{n}e}") == value)
    digits, exponent = shortest.split("e")
    return f"{digits if '.' in digits else digits + '.0'}E{int(exponent)}"
