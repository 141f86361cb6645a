"""What `consume` does while nothing comes: find out whether what should come cannot be read.

A consumer whose next records are garbage waits for ever, and looks like one that has read everything. If it is told
that they cannot be decompressed, it is not told where they end.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final

from barnabas.cli.common import connection
from barnabas.cli.common.failures import Failed
from barnabas.cli.common.output import remark
from barnabas.model.base_error import BarnabasError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from barnabas.clients.consumer.consumer import Consumer
    from barnabas.clients.records import TopicPartition

QUIET: Final = 2.0
"""Seconds without a record after which the partitions are looked at."""
LOOK_MS: Final = 10_000
SELDOM: Final = 30.0
"""Seconds between two looks, in the end."""


class Waiting:
    """Knows how long nothing came."""

    def __init__(
        self,
        consumer: Consumer[bytes, bytes],
        bootstrap_servers: str,
        properties: Mapping[str, Any],
        *,
        skip: bool,
    ) -> None:
        self._consumer = consumer
        self._bootstrap_servers = bootstrap_servers
        self._properties = properties
        self._skip = skip
        self._pause = QUIET
        self._look_at = time.monotonic() + QUIET

    def on_records(self) -> None:
        """Records came."""
        self._pause = QUIET
        self._look_at = time.monotonic() + QUIET

    def on_silence(self) -> None:
        """Nothing came. Raises Failed if that is because something cannot be read."""
        if time.monotonic() >= self._look_at:
            self.look()
            self._pause = min(2 * self._pause, SELDOM)
            self._look_at = time.monotonic() + self._pause

    def look(self) -> bool:
        """Look at what comes next in each partition; raises Failed, or steps over it, if it cannot be read.

        Whether it stepped over something.
        """
        from barnabas.clients.consumer.unreadable import find_unreadable
        from barnabas.clients.security import security_properties

        try:
            behind = self._behind()
            if not behind:
                return False
            security = security_properties(self._properties)
            with connection.open_cluster(self._bootstrap_servers, security, LOOK_MS) as cluster:
                found = find_unreadable(cluster.wire, behind)
        except BarnabasError:
            return False  # the consumer itself tells of brokers that cannot be reached
        if found is None:
            return False
        (topic, number), offset, after, reason = found
        what = f"{topic} partition {number}: the batch at offset {offset} cannot be read: {reason}"
        if not self._skip:
            raise Failed(
                f"{what}. Every consumer stops there; --skip-message-on-error goes on after it, at offset {after}."
            )
        remark(f"Skipped: {what}. Going on at offset {after}.")
        self._consumer.seek(found.partition, after)
        return True

    def _behind(self) -> dict[TopicPartition, int]:
        """The partitions that have more than was read, and where they would be read on."""
        earliest = self._properties.get("auto.offset.reset") == "earliest"
        found = {}
        for partition in self._consumer.assignment():
            first, end = self._consumer.ends(partition)
            position = self._consumer.position(partition)
            if position is None and earliest:
                position = first
            if position is not None and position < end:
                found[partition] = max(position, first)
        return found
