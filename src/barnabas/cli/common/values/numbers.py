"""Numbers as options: as large as the fields of Kafka's protocol, and the numbers of its tools, can be.

What is beyond is refused with the range, before anything is asked of a broker.
"""

from __future__ import annotations

import math
from typing import Any, Final

import click

from barnabas.model.numbers import MAX_INT16, MAX_INT32, MAX_INT64


class Whole(click.ParamType[int]):
    """A whole number in a range."""

    name = "number"

    def __init__(self, least: int, most: int) -> None:
        self._least = least
        self._most = most

    @property
    def range(self) -> str:
        """The range in words; none if it is that of a field, which goes without saying."""
        if self._least in (-MAX_INT64 - 1, -1, 0, 1) and self._most in (MAX_INT16, MAX_INT32, MAX_INT64):
            return ""
        return f"{self._least} to {self._most}"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """The number that a text says."""
        try:
            number = int(value)
        except ValueError:
            self.fail(f"{value!r} is not a whole number.", param, ctx)
        if not self._least <= number <= self._most:
            self.fail(f"{number} is not from {self._least} to {self._most}.", param, ctx)
        return number


class Decimal(click.ParamType[float]):
    """A number with or without a fraction, in a range."""

    name = "number"

    def __init__(self, least: float = -math.inf, most: float = math.inf) -> None:
        self._least = least
        self._most = most

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """The number that a text says; "nan" says none."""
        try:
            number = float(value)
        except ValueError:
            number = math.nan
        if math.isnan(number):
            self.fail(f"{value!r} is not a number.", param, ctx)
        if not self._least <= number <= self._most:
            self.fail(f"{number:g} is not from {self._least:g} to {self._most:g}.", param, ctx)
        return number


INT16: Final = Whole(0, MAX_INT16)
INT32: Final = Whole(0, MAX_INT32)
INT64: Final = Whole(0, MAX_INT64)

POSITIVE32: Final = Whole(1, MAX_INT32)
POSITIVE64: Final = Whole(1, MAX_INT64)

SIGNED64: Final = Whole(-MAX_INT64 - 1, MAX_INT64)
