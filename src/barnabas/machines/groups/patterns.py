"""The patterns that members subscribe to, compiled by RE2.

A pattern comes from a client, so it must not be able to hold up the broker: RE2 matches in time linear in the text, and
its memory is bounded, so a pattern that would need more is refused like one that is malformed. A pattern matches whole
names.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Final, Protocol

from barnabas.model.errors import InvalidRegularExpression

if TYPE_CHECKING:
    from collections.abc import Iterable

MAX_MEMORY: Final = 1 << 20
"""Bytes that one pattern may take, compiled and matching."""


class Pattern(Protocol):
    """A compiled pattern."""

    def fullmatch(self, text: str) -> object | None:
        """Something, if the pattern matches the whole text."""
        ...


@lru_cache(maxsize=128)
def compile_pattern(text: str) -> Pattern:
    """A pattern, ready to match. Raises InvalidRegularExpression."""
    import re2

    options = re2.Options()
    options.max_mem = MAX_MEMORY
    options.log_errors = False
    try:
        compiled: Pattern = re2.compile(text, options)
    except re2.error as error:
        reason = error.args[0].decode(errors="replace") if error.args else "it does not compile"
        raise InvalidRegularExpression(
            f"the topic pattern `{text}` is not a valid regular expression: {reason}"
        ) from None
    return compiled


def matching(text: str, names: Iterable[str]) -> frozenset[str]:
    """The names that a pattern matches as a whole; none if it does not compile."""
    try:
        pattern = compile_pattern(text)
    except InvalidRegularExpression:
        return frozenset()
    return frozenset(name for name in names if pattern.fullmatch(name) is not None)
