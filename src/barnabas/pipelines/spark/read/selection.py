"""What is to be read: topics by name, topics by pattern, or single partitions. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from barnabas.model.ids import TopicPartition

_TOPIC: Final = re.compile(r"[A-Za-z0-9._-]{1,249}")


def can_name_a_topic(name: str) -> bool:
    """Whether brokers let a topic have this name; some do not even let anybody ask for another one."""
    return _TOPIC.fullmatch(name) is not None


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
