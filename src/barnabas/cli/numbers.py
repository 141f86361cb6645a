"""Numbers as options: as large as the fields of Kafka's protocol, and the numbers of its tools, can be.

What is beyond is refused with the range, before anything is asked of a broker.
"""

from __future__ import annotations

from typing import Final

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
