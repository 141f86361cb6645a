"""The patterns that members subscribe to, compiled by RE2.

A pattern comes from a client, so it must not be able to hold up the broker. RE2 takes time linear in the text, but the
factor is the size of the compiled pattern, all of which may have to be stepped through at each character. So its size
is bounded, and a pattern above the bound is refused like one that is malformed. Alternatives of plain names may be
larger, since each of their characters is looked at only once in a name.

A pattern matches whole names. Names are matched all in one text, a line each, since a call takes longer than a name:
one hit is a run of lines that match, and no line break is matched by the pattern itself (RE2's `never_nl`). Patterns to
which the ends of a text are not the ends of a line are matched name by name. What a pattern matched is remembered for
the whole process, so only topics that came since have to be looked at.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from barnabas.model.errors import InvalidRegularExpression

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

MAX_LENGTH: Final = 1_024
"""Characters of a pattern."""
MAX_SIZE: Final = 128
"""Instructions of a compiled pattern that has more than plain names: a name of 30 characters then takes about 15
microseconds at worst."""
MAX_MEMORY: Final = 1 << 15
"""Bytes that one pattern may take, compiled and matching. With more of it, RE2 is slower where a pattern means harm: it
builds states that it never comes back to."""
MAX_MEMORY_OF_NAMES: Final = 1 << 17
"""The same for plain names: room for the longest alternatives."""
MAX_REMEMBERED: Final = 128
"""Patterns of which is remembered what they match."""

_LARGEST_IN_LINES: Final = 64
"""Above this size a pattern is slower in one text than name by name."""
_PLAIN_NAMES: Final = re.compile(r"\^?\(?(?:[\w|-]|\\\.|\.(?!\*))*+\)?(?:[\w-]|\\\.|\.(?!\*))*+(?:\.\*)?\$?", re.ASCII)
_NEEDS_WHOLE_TEXT: Final = re.compile(r"\\[ACQz]|\(\?[A-Za-z]*-")
"""Ends of the text, single bytes, quotations that may have no end, and flags that are turned off."""
_NEEDS_UNICODE: Final = re.compile(r"[^\x00-\x7f]|\\x\{")


class Pattern:
    """A compiled pattern."""

    __slots__ = ("_lines", "_whole", "size")

    def __init__(self, text: str) -> None:
        """Raises ValueError with the reason if it is refused."""
        if len(text) > MAX_LENGTH:
            raise ValueError(f"it is longer than {MAX_LENGTH} characters")
        is_names = _PLAIN_NAMES.fullmatch(text) is not None
        self._whole = _compile(text, text, MAX_MEMORY_OF_NAMES if is_names else MAX_MEMORY)
        self.size: int = self._whole.programsize
        """The number of its instructions."""
        if self.size > MAX_SIZE and not is_names:
            raise ValueError(f"it is too large: {self.size} instructions of at most {MAX_SIZE}")
        in_lines = self.size <= _LARGEST_IN_LINES and _NEEDS_WHOLE_TEXT.search(text) is None
        self._lines = _compile(text, rf"(?m)(?:^(?:{text})$\C)+", MAX_MEMORY) if in_lines else None

    def matches(self, text: str) -> bool:
        """Whether the whole of any text matches."""
        return self._whole.fullmatch(text.encode()) is not None

    def matching(self, names: Iterable[str]) -> frozenset[str]:
        """The names that match as a whole; none of them is empty or has line breaks."""
        if self._lines is None:
            return frozenset(name for name in names if self._whole.fullmatch(name.encode()) is not None)
        lines = "".join(f"{name}\n" for name in names).encode()
        found: list[str] = []
        for run in self._lines.finditer(lines):
            found.extend(run.group()[:-1].decode().split("\n"))
        return frozenset(found)


def _compile(text: str, expression: str, memory: int) -> Any:
    import re2

    options = re2.Options()
    options.max_mem = memory
    options.log_errors = False
    options.never_capture = True
    options.never_nl = text is not expression
    if _NEEDS_UNICODE.search(text) is None:
        options.encoding = re2.Options.Encoding.LATIN1
    try:
        return re2.compile(expression.encode(), options)
    except re2.error as error:
        raise ValueError(error.args[0].decode(errors="replace") if error.args else "it does not compile") from None


@lru_cache(maxsize=MAX_REMEMBERED)
def compile_pattern(text: str) -> Pattern:
    """A pattern, ready to match. Raises InvalidRegularExpression."""
    try:
        return Pattern(text)
    except ValueError as error:
        raise InvalidRegularExpression(
            f"The topic pattern `{text[:MAX_LENGTH]}` is not a valid regular expression: {error}"
        ) from None


def matching(text: str, names: Iterable[str]) -> frozenset[str]:
    """The names that a pattern matches as a whole; none if it does not compile."""
    try:
        pattern = compile_pattern(text)
    except InvalidRegularExpression:
        return frozenset()
    return pattern.matching(names)


def size_of(text: str) -> int:
    """How much work a pattern is; nothing if it does not compile."""
    try:
        return compile_pattern(text).size
    except InvalidRegularExpression:
        return 0


class _Matched(NamedTuple):
    """What a pattern matched among these names."""

    names: frozenset[str]
    found: frozenset[str]


class Matches:
    """What patterns matched among the topics of the last image that each of them saw."""

    def __init__(self) -> None:
        self._topics: Mapping[str, object] = {}
        self._names: frozenset[str] = frozenset()
        self._matched: dict[str, _Matched] = {}

    def among(self, text: str, topics: Mapping[str, object]) -> frozenset[str]:
        """The topics that a pattern matches; the mapping must not be changed later."""
        names = self._names_of(topics)
        last = self._matched.pop(text, None)
        if last is None:
            found = matching(text, names)
        elif last.names is names:
            found = last.found
        else:
            came = matching(text, names - last.names)
            found = last.found if not came and last.found <= names else (last.found & names) | came
        self._matched[text] = _Matched(names, found)
        if len(self._matched) > MAX_REMEMBERED:
            del self._matched[next(iter(self._matched))]
        return found

    def _names_of(self, topics: Mapping[str, object]) -> frozenset[str]:
        """The names of topics; the same set as before if they are the same names."""
        if topics is not self._topics:
            self._topics = topics
            if topics.keys() != self._names:
                self._names = frozenset(topics)
        return self._names


MATCHES: Final = Matches()
"""Shared by all coordinators of the process: a memory of what is so by itself, it changes no decision."""
