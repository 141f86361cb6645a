"""Numbers as options: as large as the fields of Kafka's protocol, and the numbers of its tools, can be.

What is beyond is refused with the range, before anything is asked of a broker.
"""

from __future__ import annotations

import math
from typing import Any, Final

import click

MAX_INT16: Final = 2**15 - 1
MAX_INT32: Final = 2**31 - 1
MAX_INT64: Final = 2**63 - 1

INT16: Final = click.IntRange(0, MAX_INT16)
INT32: Final = click.IntRange(0, MAX_INT32)
INT64: Final = click.IntRange(0, MAX_INT64)

POSITIVE16: Final = click.IntRange(1, MAX_INT16)
POSITIVE32: Final = click.IntRange(1, MAX_INT32)
POSITIVE64: Final = click.IntRange(1, MAX_INT64)

SIGNED64: Final = click.IntRange(-MAX_INT64 - 1, MAX_INT64)


class Seconds(click.FloatRange):
    """A length of time, also with a fraction; nan, which is in no range and out of none, is refused."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """How long a text means."""
        found = float(super().convert(value, param, ctx))
        if math.isnan(found):
            self.fail(f"{value!r} is not a number.", param, ctx)
        return found


UP_TO_A_DAY: Final = Seconds(0, 86_400)
