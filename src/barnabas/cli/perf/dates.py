"""Times in the letters of Java's SimpleDateFormat, of which --date-format is made.

Those letters are taken that say when something was measured: year to millisecond, week day and zone. Text in 'quotes'
and everything that is no letter stands for itself.
"""

from __future__ import annotations

import re
from datetime import datetime
from typing import TYPE_CHECKING, Final

import click

if TYPE_CHECKING:
    from collections.abc import Callable

_PART: Final = re.compile(r"'((?:[^']|'')*)'|(([a-zA-Z])\3*)|([^a-zA-Z']+)")
_NUMBERS: Final[dict[str, Callable[[datetime], int]]] = {
    "d": lambda moment: moment.day,
    "D": lambda moment: moment.timetuple().tm_yday,
    "H": lambda moment: moment.hour,
    "h": lambda moment: (moment.hour - 1) % 12 + 1,
    "m": lambda moment: moment.minute,
    "s": lambda moment: moment.second,
    "S": lambda moment: moment.microsecond // 1000,
}
"""Letters that are numbers; how often they stand is the least width."""
_WORDS: Final = {"a": ("%p", "%p"), "E": ("%a", "%A"), "z": ("%Z", "%Z"), "Z": ("%z", "%z")}
"""Letters that are words, in their short form and, from four letters on, in their long one."""


class JavaDate:
    """A pattern that times are written by."""

    def __init__(self, pattern: str) -> None:
        """Raises UsageError for a pattern with letters that are not known."""
        self._parts: list[Callable[[datetime], str]] = []
        position = 0
        for match in _PART.finditer(pattern):
            if match.start() != position:
                break
            position = match.end()
            quoted, letters, letter, plain = match.groups()
            if letters is not None:
                self._parts.append(_written(letter, len(letters)))
            else:
                self._parts.append(_fixed(plain if quoted is None else quoted.replace("''", "'") or "'"))
        if position != len(pattern):
            raise click.UsageError(f"--date-format {pattern} has a quote that is not closed.")

    def of(self, seconds: float) -> str:
        """The moment of so many seconds since 1970, in the zone of this machine."""
        return self.format(datetime.fromtimestamp(seconds))

    def format(self, moment: datetime) -> str:
        """The moment in words."""
        return "".join(part(moment) for part in self._parts)


def _written(letter: str, width: int) -> Callable[[datetime], str]:
    if letter == "y":
        return lambda moment: moment.strftime("%y") if width == 2 else str(moment.year).zfill(width)
    if letter == "M":
        if width > 2:
            return lambda moment: moment.strftime("%b" if width == 3 else "%B")
        return lambda moment: str(moment.month).zfill(width)
    if letter in _NUMBERS:
        number = _NUMBERS[letter]
        return lambda moment: str(number(moment)).zfill(width)
    if letter in _WORDS:
        pattern = _WORDS[letter][width > 3]
        return lambda moment: moment.astimezone().strftime(pattern)
    raise click.UsageError(f"--date-format: the letter {letter} is not known here; text goes between 'quotes'.")


def _fixed(text: str) -> Callable[[datetime], str]:
    return lambda moment: text
