"""How far a query is, shown in a consumer group for people and tools: Spark itself never reads it.

One thread of Spark's tells all listeners of a session, so none may wait long for a group: what it did not take is a
warning, and is tried again later.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Final

from barnabas.model.base_error import BarnabasError
from barnabas.pipelines.spark.read.offsets import from_nested, from_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from barnabas.model.ids import TopicPartition
    from barnabas.pipelines.spark.cluster import ClusterView
    from barnabas.pipelines.spark.read.offsets import Offsets

GROUP_SECONDS: Final = 1.0
"""How long a group's coordinator is waited for while other listeners wait."""

log = logging.getLogger("barnabas.pipelines")


class GroupProgress:
    """A group, and what it has not taken yet. `cluster` is asked for a view of it whenever one is needed."""

    def __init__(self, group: str, cluster: Callable[[], ClusterView]) -> None:
        self._group = group
        self._cluster = cluster
        self._unshown: Offsets = {}

    def show(self, offsets: Offsets, timeout: float = GROUP_SECONDS) -> None:
        """Commit how far a query is."""
        self._unshown = offsets
        self.retry(timeout)

    def retry(self, timeout: float = GROUP_SECONDS) -> None:
        """Commit what the group did not take before, if there is something."""
        if not self._unshown:
            return
        try:
            self._cluster().commit(self._group, self._unshown, timeout=timeout)
            self._unshown = {}
        except BarnabasError as error:
            log.warning("The consumer group %s does not show the progress of the query: %s", self._group, error)


def read_upto(sources: Iterable[Mapping[str, Any]]) -> dict[TopicPartition, int]:
    """Where a batch ended, by Spark's JSON of these sources; of a topic that is read twice, the lower end counts."""
    found: dict[TopicPartition, int] = {}
    for source in sources:
        for partition, end in reported_offsets(source.get("endOffset") or {}).items():
            found[partition] = min(end, found.get(partition, end))
    return found


def reported_offsets(value: object) -> Offsets:
    """Offsets as Spark's JSON of a progress has them."""
    return from_text(value) if isinstance(value, str) else from_nested(value)
