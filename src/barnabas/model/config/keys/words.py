"""Short names for what the tables of keys repeat."""

from __future__ import annotations

from typing import Final

from barnabas.model.config.definition import Importance, Items, Mode, Range, Type

BOOLEAN, STRING, INT, SHORT, LONG, DOUBLE, LIST, CLASS, PASSWORD = Type
HIGH, MEDIUM, LOW = Importance
READ_ONLY, PER_BROKER, CLUSTER_WIDE = Mode

MAX_INT: Final = 2**31 - 1
MAX_LONG: Final = 2**63 - 1
MAX_DOUBLE: Final = 1.7976931348623157e308

POSITIVE: Final = Range(1)
NOT_NEGATIVE: Final = Range(0)
ITEMS: Final = Items()
SOME_ITEMS: Final = Items(empty=False)
