"""What is to be read: topics by name, topics by pattern, or single partitions. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import re

    from barnabas.model.ids import TopicPartition


@dataclass(frozen=True, slots=True)
class Selection:
    """Exactly one of the three is given. A pattern has to match the whole name; internal topics match none."""

    topics: tuple[str, ...] = ()
    pattern: re.Pattern[str] | None = None
    assigned: tuple[TopicPartition, ...] = ()

    def __str__(self) -> str:
        if self.pattern is not None:
            return f"topics that match {self.pattern.pattern}"
        return ", ".join(self.topics or map(str, self.assigned))
