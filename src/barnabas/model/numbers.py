"""The largest numbers that the fields of Kafka's protocol hold."""

from __future__ import annotations

from typing import Final

MAX_INT16: Final = 2**15 - 1
MAX_INT32: Final = 2**31 - 1
MAX_INT64: Final = 2**63 - 1
