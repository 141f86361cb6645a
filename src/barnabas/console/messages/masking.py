"""Fields that nobody sees by the console: rules that replace them before a record is shown, filtered or downloaded.

A rule is TOPIC:PATH, where TOPIC may have wildcards and PATH is `key`, `headers.NAME`, `value`, or a field of the value
as `value.card.number`; `*` stands for any name or any element of a list. Masking fails closed: a value that a rule
looks into, and that is not JSON, Avro or Protobuf with a schema, is hidden as a whole, and so is text or a number where
the rule expects fields. A dead letter is hidden by the rules of its topic and of the one that it comes from, or by all
rules if it does not say from which.
"""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

HIDDEN: Final = "•••"
"""What stands where something was."""
KEY: Final = "key"
VALUE: Final = "value"
HEADERS: Final = "headers"


class InvalidMask(ValueError):
    """A rule that means nothing."""


@dataclass(frozen=True, slots=True)
class MaskRule:
    """What is hidden in which topics."""

    topic: str
    part: str
    path: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Masks:
    """The rules of one topic."""

    key: bool
    value: bool
    fields: tuple[tuple[str, ...], ...]
    headers: tuple[str, ...]

    def __bool__(self) -> bool:
        return bool(self.key or self.value or self.fields or self.headers)

    def hides_header(self, name: str) -> bool:
        """Whether a header is hidden."""
        return any(fnmatchcase(name, pattern) for pattern in self.headers)

    def hides_all_of(self, other: Masks) -> bool:
        """Whether nothing is seen through these that is hidden by others."""
        return (
            self.key >= other.key
            and self.value >= other.value
            and (self.value or set(self.fields) >= set(other.fields))
            and set(self.headers) >= set(other.headers)
        )

    def apply(self, value: Any) -> Any:
        """A decoded value without what is hidden; the value itself is not changed."""
        for path in self.fields:
            value = _without(value, path)
        return value


def parse_rule(text: str) -> MaskRule:
    """A rule of the form TOPIC:PATH; raises InvalidMask."""
    topic, found, path = text.rpartition(":")
    part, *rest = path.split(".")
    whole = part in (KEY, VALUE) and not rest
    if not found or not topic or not (whole or (part == VALUE and all(rest)) or (part == HEADERS and len(rest) == 1)):
        raise InvalidMask(f"{text} is not of the form TOPIC:key, TOPIC:headers.NAME or TOPIC:value.FIELD.FIELD")
    return MaskRule(topic, part, tuple(rest))


def masks_of(rules: Sequence[MaskRule], topic: str) -> Masks:
    """What is hidden in one topic."""
    return _joined([rule for rule in rules if fnmatchcase(topic, rule.topic)])


def masks_of_letter(rules: Sequence[MaskRule], topic: str, origins: frozenset[str] | None) -> Masks:
    """What is hidden in a dead letter of this topic that comes from others; None for from wherever."""
    if origins is None:
        return _joined(rules)
    topics = (topic, *origins)
    return _joined([rule for rule in rules if any(fnmatchcase(each, rule.topic) for each in topics)])


def _joined(of_topic: Sequence[MaskRule]) -> Masks:
    return Masks(
        key=any(rule.part == KEY for rule in of_topic),
        value=any(rule.part == VALUE and not rule.path for rule in of_topic),
        fields=tuple(rule.path for rule in of_topic if rule.part == VALUE and rule.path),
        headers=tuple(rule.path[0] for rule in of_topic if rule.part == HEADERS),
    )


def _without(value: Any, path: tuple[str, ...]) -> Any:
    if not path:
        return HIDDEN
    name, rest = path[0], path[1:]
    if isinstance(value, dict):
        return {key: _without(each, rest) if name in ("*", key) else each for key, each in value.items()}
    if isinstance(value, list):
        return [_without(each, rest if name == "*" else path) for each in value]
    return None if value is None else HIDDEN
