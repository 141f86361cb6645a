r"""Patterns for names of topics, in the words that librdkafka and brokers have for them.

A program writes Python's regular expressions. librdkafka reads POSIX ones, without `\d` and `(?:...)`, and in the new
group protocol the broker reads them with RE2. So a pattern is written anew in what all three have in common. Names of
topics consist of few characters: whatever stands for one character becomes the list of those that it matches, which is
right for every class, escape and flag, because Python itself says what matches.
"""

from __future__ import annotations

import re
import string
from typing import TYPE_CHECKING, Final

from barnabas.clients.errors import InvalidClientConfig

if TYPE_CHECKING:
    from collections.abc import Iterator

LEGAL: Final = string.digits + string.ascii_uppercase + string.ascii_lowercase + "._-"
"""What names of topics consist of."""
NOTHING: Final = "/"
"""A character that no name has."""
SPECIAL: Final = frozenset(".[]{}()*+?^$|\\")
POSIX_CLASS: Final = re.compile(r"\[:\^?\w+:\]")
RUNS: Final = (string.digits, string.ascii_uppercase, string.ascii_lowercase)
TOKEN: Final = re.compile(
    r"""
      (?P<flags>\(\?[aimsu]+\))                          # flags of the whole pattern, which Python has read
    | (?P<open>\((?:\?:|\?P<\w+>)?(?!\?))                # groups: none of them is asked for
    | (?P<plain>[)|^$])
    | (?P<edge>\\[AZ])
    | (?P<repeat>(?:[*+?]|\{\d+(?:,\d*)?\}|\{,\d+\})\??) # lazy ones match the same names
    | (?P<one>\[\^?\]?(?:\\.|[^\]\\])*\]                 # a class
            | \\[^AZbB0-9xuUN]                           # an escape for a class or for a character
            | [^\\(*+?\[])
    """,
    re.VERBOSE | re.DOTALL,
)


def for_librdkafka(topic: str | re.Pattern[str]) -> str:
    """A name, or a pattern in the form that librdkafka and brokers read.

    In the classic protocol librdkafka looks for it anywhere in a name; in the new one the broker matches whole names.
    So each pattern is one for whole names, and one for beginnings says that anything may follow.
    """
    if isinstance(topic, re.Pattern):
        return f"^({as_posix(topic)})$"
    return f"^({as_posix(compile_prefix(topic))}).*$" if topic.startswith("^") else topic


def compile_prefix(topic: str) -> re.Pattern[str]:
    """A string that begins with ^: a pattern that names begin with."""
    if POSIX_CLASS.search(topic):
        raise InvalidClientConfig(
            f"{topic!r} has a class like [[:digit:]], which Python reads as something else: write \\d, or [0-9]"
        )
    try:
        return re.compile(topic)
    except re.error as error:
        raise InvalidClientConfig(f"{topic!r} is not a regular expression: {error}") from error


def as_posix(pattern: re.Pattern[str]) -> str:
    """The pattern as a POSIX and RE2 expression. Raises InvalidClientConfig for what these cannot say."""
    if pattern.flags & re.VERBOSE:
        raise InvalidClientConfig(f"{pattern.pattern!r} has re.VERBOSE: write a pattern for topics in one line")
    return "".join(_tokens(pattern))


def _tokens(pattern: re.Pattern[str]) -> Iterator[str]:
    text, place = pattern.pattern, 0
    while place < len(text):
        token = TOKEN.match(text, place)
        if token is None or _is_possessive(text, token):
            raise InvalidClientConfig(
                f"{text!r} cannot be used to look for topics, because of what follows {text[:place]!r}: brokers know "
                "no lookarounds, backreferences, word boundaries and the like. List the topics, or filter them yourself"
            )
        place = token.end()
        match token.lastgroup:
            case "flags":
                pass
            case "open":
                yield "("
            case "plain":
                yield token[0]
            case "edge":
                yield "^" if token[0] == r"\A" else "$"
            case "repeat":
                greedy = token[0][0] + token[0][1:].removesuffix("?")
                yield greedy.replace("{,", "{0,")
            case _:
                yield _one(token[0], pattern.flags)


def _is_possessive(text: str, token: re.Match[str]) -> bool:
    return token.lastgroup == "repeat" and text[token.end() : token.end() + 1] == "+"


def _one(expression: str, flags: int) -> str:
    """What stands for one character."""
    matches = re.compile(expression, flags & (re.IGNORECASE | re.ASCII | re.DOTALL)).fullmatch
    found = "".join(character for character in LEGAL if matches(character))
    if found == LEGAL:
        return "."
    if len(found) > 1:
        return f"[{_ranges(found)}]"
    character = found or NOTHING
    return f"\\{character}" if character in SPECIAL else character


def _ranges(characters: str) -> str:
    """The inside of a class; a dash stands at its end, where it means itself."""
    written = []
    for run in RUNS:
        parts = re.findall("1+|0+", "".join("1" if character in characters else "0" for character in run))
        place = 0
        for part in parts:
            if part[0] == "1":
                first, last = run[place], run[place + len(part) - 1]
                written.append(f"{first}-{last}" if len(part) > 2 else run[place : place + len(part)])
            place += len(part)
    return "".join(written) + "".join(character for character in "._-" if character in characters)
