"""Numbers as options: those that fit into the fields of Kafka's protocol."""

from __future__ import annotations

from typing import Final

import click

MAX_INT16: Final = 2**15 - 1
MAX_INT32: Final = 2**31 - 1
MAX_INT64: Final = 2**63 - 1

INT16: Final = click.IntRange(0, MAX_INT16)
INT32: Final = click.IntRange(0, MAX_INT32)
INT64: Final = click.IntRange(0, MAX_INT64)
