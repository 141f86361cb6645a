"""The consumer group of a load, which shows its lag to people and tools. Nothing is ever read from it."""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, Final

from barnabas.model.base_error import BarnabasError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from barnabas.model.ids import TopicPartition
    from barnabas.pipelines.loading.stopping import Stopping
    from barnabas.pipelines.spark.cluster import ClusterView

GROUP_SECONDS: Final = 10.0
"""How long a load waits for the coordinator of its group, and for how long it leaves one alone that did not answer."""

log = logging.getLogger("barnabas.pipelines")


class LoadGroup:
    """Commits the offsets of a load to its consumer group."""

    def __init__(self, group: str, view: ClusterView, stopping: Stopping) -> None:
        self._group = group
        self._view = view
        self._stopping = stopping
        self._committed: dict[TopicPartition, int] = {}
        self._next_commit = 0.0

    def commit(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Commit offsets that the group does not have yet. A failure is logged, and does not stop the load."""
        new = {place: offset for place, offset in offsets.items() if self._committed.get(place) != offset}
        if not new or time.monotonic() < self._next_commit:
            return
        try:
            with self._stopping.abandonable():
                self._view.commit(self._group, new, timeout=GROUP_SECONDS)
        except BarnabasError as error:
            log.warning("The consumer group %s does not show the progress of the load: %s", self._group, error)
            self._next_commit = time.monotonic() + GROUP_SECONDS
        else:
            self._committed |= new
