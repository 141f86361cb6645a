"""Readers of many partitions at once: one Fetch asks a broker for all partitions of a topic and of the internal topics.

A broker that has few descriptors left can then serve some of them and not others. What is read is not looked at;
readers of one partition do that (`consumers`).
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

from barnabas.protocol.apis import ApiKey
from tests.simulation.whole.client import Client, Unanswered

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

INTERNAL: Final = {"__consumer_offsets": 2, "__transaction_state": 2}


class Scanner:
    """Fetches from the starts of all partitions until it is told to stop."""

    def __init__(self, client: Client, partitions: Mapping[str, int], running: Callable[[], bool]) -> None:
        self._client = client
        self._partitions = partitions
        self._running = running

    async def run(self) -> None:
        """Ask one broker after the other."""
        while self._running():
            try:
                await self._client.ask_any(
                    ApiKey.FETCH,
                    12,
                    replica_id=-1,
                    max_wait=0,
                    min_bytes=0,
                    max_bytes=1 << 20,
                    isolation_level=0,
                    session_epoch=-1,
                    topics=[self._wanted(topic, count) for topic, count in self._partitions.items()],
                )
            except Unanswered:
                await self._client.pause()
            await asyncio.sleep(self._client.chance.expovariate(5.0))

    def _wanted(self, topic: str, count: int) -> dict[str, Any]:
        partition = {
            "fetch_offset": 0,
            "current_leader_epoch": -1,
            "last_fetched_epoch": -1,
            "log_start_offset": -1,
            "partition_max_bytes": 1024,
        }
        return {"topic": topic, "partitions": [{"partition": number, **partition} for number in range(count)]}
