"""Where something in a spec is written, and what is wrong with it there."""

from __future__ import annotations

import difflib
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from barnabas.pipelines.errors import PipelineError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

_HERE = str(Path(__file__).parent)


@dataclass(frozen=True, slots=True)
class Place:
    """A line of a file; `keys` has the lines of what belongs to it, where they are known."""

    file: Path
    line: int
    keys: Mapping[str, int] = field(default_factory=dict, compare=False)

    def at(self, key: str, further: int = 0) -> Place:
        """The place of a key, or this one; `further` counts lines from there on."""
        return Place(self.file, self.keys[key] + further) if key in self.keys else self

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


def here() -> Place:
    """The place of the code that called into this package: an element of a Python file is where it was made."""
    frame = sys._getframe(1)
    while frame.f_back is not None and (frame.f_code.co_filename.startswith((_HERE, "<"))):
        frame = frame.f_back
    return Place(Path(frame.f_code.co_filename), frame.f_lineno)


@dataclass(frozen=True, slots=True)
class Problem:
    """Something that is wrong, where it is, and what to do about it."""

    place: Place
    text: str

    def __str__(self) -> str:
        return f"{self.place}: {self.text}"


class SpecError(PipelineError):
    """A spec that cannot run; it knows everything that is wrong with it."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(map(str, self.problems)))


def suggestion(name: str, known: Iterable[str]) -> str:
    """` Did you mean "orders"?`, or what there is, or nothing."""
    names = list(dict.fromkeys(known))
    spelled = {each.lower(): each for each in names}
    close = difflib.get_close_matches(name.lower(), spelled, n=1)
    if close:
        return f' Did you mean "{spelled[close[0]]}"?'
    return f" There is {', '.join(names)}." if names else ""
