"""What a broker does with other brokers in the background: replication, failure detection, leader balance, strays.

A broker that is alone in its cluster has all of it too, at rest.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from barnabas.broker.tasks import TaskSet

if TYPE_CHECKING:
    from barnabas.broker.controller.failure_detector import FailureDetector
    from barnabas.broker.controller.leader_balancer import LeaderBalancer
    from barnabas.broker.controller.peers import Peers
    from barnabas.broker.replication.failed_logs import FailedLogs
    from barnabas.broker.replication.fetcher_manager import FetcherManager
    from barnabas.broker.replication.isr_manager import IsrManager
    from barnabas.broker.replication.strays import Strays
    from barnabas.metadata.images.cache import MetadataCache


@dataclass(frozen=True, slots=True, kw_only=True)
class InterBrokerWork:
    """The parts that run in the background, started and stopped together."""

    metadata: MetadataCache
    peers: Peers
    fetchers: FetcherManager
    isr_manager: IsrManager
    failed_logs: FailedLogs
    failure_detector: FailureDetector
    leader_balancer: LeaderBalancer
    strays: Strays
    _tasks: TaskSet = field(default_factory=TaskSet)

    def start(self) -> None:
        """Begin; the replicas already follow the image."""
        self.metadata.subscribe(self.peers.on_change)
        self.metadata.subscribe(self.fetchers.on_change)
        self.metadata.subscribe(self.failure_detector.on_change)
        self.isr_manager.start()
        self._tasks.spawn(self.leader_balancer.run(), "leader balancer")
        self._tasks.spawn(self.failed_logs.watch(), "failed log directories")

    async def stop(self) -> None:
        """Send and fetch no more."""
        await self._tasks.cancel()
        await self.failure_detector.stop()
        await self.isr_manager.stop()
        await self.fetchers.stop()
        await self.strays.stop()
        self.peers.close()
