"""What a handler may use: the parts of a running broker, put together by `broker/assembly`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from barnabas.broker.serving.long_answers import LongAnswers

if TYPE_CHECKING:
    from concurrent.futures import Executor

    from barnabas.broker.controller.broker_handshake import BrokerHandshake
    from barnabas.broker.controller.connection_probe import ConnectionProbe
    from barnabas.broker.controller.link import ControllerLink
    from barnabas.broker.controller.local_controller import LocalController
    from barnabas.broker.controller.membership import ClusterMembership
    from barnabas.broker.controller.peers import Peers
    from barnabas.broker.coordinators.groups import GroupCoordinators
    from barnabas.broker.coordinators.producer_ids import ProducerIdSource
    from barnabas.broker.coordinators.shares import ShareCoordinators
    from barnabas.broker.coordinators.transactions import TransactionCoordinators
    from barnabas.broker.metrics.telemetry import TelemetryReceiver
    from barnabas.broker.permissions.access import Permissions
    from barnabas.broker.permissions.following import AclFollower
    from barnabas.broker.replication.replicas import ReplicaManager
    from barnabas.broker.replication.throttle import ReplicationThrottle
    from barnabas.broker.security.delegation_tokens import DelegationTokens
    from barnabas.broker.security.quotas import ClientQuotas
    from barnabas.broker.serving.certificates import Certificates
    from barnabas.broker.serving.validation_pool import ValidationPool
    from barnabas.broker.settings import Settings
    from barnabas.broker.shares.partitions import SharePartitions
    from barnabas.machines.fetch_session import FetchSessionCache
    from barnabas.metadata.images.cache import MetadataCache
    from barnabas.model.clock import Clock
    from barnabas.storage.manager import LogManager


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerContext:
    """The parts of one broker that handlers may use."""

    broker_id: int
    settings: Settings
    clock: Clock
    logs: LogManager
    replicas: ReplicaManager
    metadata: MetadataCache
    membership: ClusterMembership
    controller: LocalController
    """Takes requests while this broker is the active controller."""
    controller_link: ControllerLink
    """Takes requests to the controller, wherever it is."""
    peers: Peers
    handshake: BrokerHandshake
    probe: ConnectionProbe
    leader_throttle: ReplicationThrottle
    """Of what this broker sends to followers."""
    fetch_sessions: FetchSessionCache
    certificates: Certificates | None
    """None without a listener with TLS."""
    producer_ids: ProducerIdSource
    tokens: DelegationTokens | None
    """None without delegation.token.secret.key."""
    quotas: ClientQuotas
    """How much clients may use, and what they have used lately."""
    groups: GroupCoordinators
    transactions: TransactionCoordinators
    share_coordinators: ShareCoordinators
    shares: SharePartitions
    """The share partitions that this broker serves."""
    executor: Executor
    """For everything that may wait for the disk."""
    validation_pool: ValidationPool
    """For batches whose records must be read or rewritten."""
    permissions: Permissions | None = None
    """What callers may do; None where everybody may do everything, because there is no authorizer."""
    acls: AclFollower | None = None
    """Brings the ACLs from the metadata tree to `permissions`."""
    telemetry: TelemetryReceiver | None = None
    """Takes metrics of clients; None where nobody wants them."""
    long_answers: LongAnswers = field(default_factory=LongAnswers)
