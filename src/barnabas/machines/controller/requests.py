"""What the controller is asked to do. Values are checked by the rules, not here."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

DEFAULT = -1
"""As a number of partitions or a replication factor: what the broker is configured with."""


@dataclass(frozen=True, slots=True)
class NewTopic:
    """A topic to be made: either with counts, or with an assignment of every partition."""

    name: str
    partitions: int = DEFAULT
    replication_factor: int = DEFAULT
    assignments: Sequence[tuple[int, Sequence[int]]] = ()
    """Partition index and its broker ids, as the client listed them (indexes may repeat: then it is refused)."""
    configs: Mapping[str, str] = field(default_factory=dict)
    """Overrides, already validated."""


@dataclass(frozen=True, slots=True)
class NewPartitions:
    """A topic to be given more partitions."""

    name: str
    count: int
    """How many partitions it has afterwards."""
    assignments: Sequence[Sequence[int]] | None = None
    """Broker ids of each added partition, or None to let the controller place them."""
