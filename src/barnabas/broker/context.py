"""What a handler may use: the parts of a running broker, put together by `broker/app`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from barnabas.broker.long_answers import LongAnswers

if TYPE_CHECKING:
    from concurrent.futures import Executor

    from barnabas.broker.cluster import Cluster
    from barnabas.broker.controller import Controller
    from barnabas.broker.groups import Groups
    from barnabas.broker.opening import Opening
    from barnabas.broker.producer_ids import ProducerIdSource
    from barnabas.broker.replicas import ReplicaManager
    from barnabas.broker.settings import Settings
    from barnabas.broker.transactions import Transactions
    from barnabas.machines.fetch_session import FetchSessionCache
    from barnabas.metadata.cache import MetadataCache
    from barnabas.model.clock import Clock
    from barnabas.storage.manager import LogManager


@dataclass(frozen=True, slots=True, kw_only=True)
class Broker:
    """One broker's parts."""

    broker_id: int
    settings: Settings
    clock: Clock
    logs: LogManager
    replicas: ReplicaManager
    metadata: MetadataCache
    controller: Controller
    fetch_sessions: FetchSessionCache
    producer_ids: ProducerIdSource
    groups: Groups
    transactions: Transactions
    cluster: Cluster
    executor: Executor
    """For everything that may wait for the disk."""
    opening: Opening
    """For batches that must be opened."""
    long_answers: LongAnswers = field(default_factory=LongAnswers)

    @property
    def has_listener_for_brokers(self) -> bool:
        """Whether brokers meet elsewhere than clients do."""
        return len(self.settings.static.listeners) > 1
