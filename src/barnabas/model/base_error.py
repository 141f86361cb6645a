"""What all errors of Barnabas are.

It stands alone, without Kafka's error codes: those come with kio, which loads Hypothesis wherever that is installed,
11 MB in each of Spark's Python processes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from barnabas.model.remedies import Remedy


class BarnabasError(Exception):
    """Anything that Barnabas raises on purpose. The message says what happened; `remedy`, if any, what to do."""

    remedy: Remedy | None = None

    def with_remedy(self, remedy: Remedy | None) -> Self:
        """This error, with what can be done about it."""
        self.remedy = remedy
        return self
