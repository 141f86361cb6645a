"""The one place where a broker is put together from its parts.

`assemble` makes every part and hands each what it needs; nothing is changed on a part after it was made. Two parts that
know each other meet in one of two ways: the one that is made first is given a function that finds the other later, or
the one that is made last subscribes. `app` starts and stops what was assembled.

Tests and simulations call the same function with other parts (`BrokerOptions`): files that fail, a clock that they
move, a metadata store and connections in memory. Nothing here needs a running event loop of a certain kind: whoever
runs the loop chooses it.
"""

from __future__ import annotations

import asyncio
import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

from barnabas.broker import optional_parts
from barnabas.broker.cleaner_threads import CleanerThreads
from barnabas.broker.clock import SystemClock
from barnabas.broker.context import BrokerContext
from barnabas.broker.controller.broker_handshake import BrokerHandshake
from barnabas.broker.controller.broker_updaters import BrokerUpdaters
from barnabas.broker.controller.connection_probe import ConnectionProbe
from barnabas.broker.controller.failure_detector import FailureDetector
from barnabas.broker.controller.inter_broker import InterBrokerWork
from barnabas.broker.controller.leader_balancer import LeaderBalancer
from barnabas.broker.controller.link import ControllerLink
from barnabas.broker.controller.membership import ClusterMembership, MembershipOptions, new_id
from barnabas.broker.controller.peers import Peers
from barnabas.broker.coordinators.groups import GroupCoordinators
from barnabas.broker.coordinators.producer_ids import ProducerIdSource
from barnabas.broker.coordinators.runtime import CoordinatorParts
from barnabas.broker.coordinators.shares import ShareCoordinators
from barnabas.broker.coordinators.transactions import TransactionCoordinators
from barnabas.broker.housekeeping import Housekeeping
from barnabas.broker.replication.failed_logs import FailedLogs
from barnabas.broker.replication.fetcher_manager import FetcherContext, FetcherManager
from barnabas.broker.replication.isr_manager import IsrManager
from barnabas.broker.replication.replicas import ReplicaManager
from barnabas.broker.replication.strays import Strays
from barnabas.broker.replication.throttle import ReplicationThrottle
from barnabas.broker.security.quotas import ClientQuotas
from barnabas.broker.serving.dispatch import Dispatcher
from barnabas.broker.serving.validation_pool import THREADS, ValidationPool
from barnabas.broker.settings import Settings
from barnabas.broker.shares.partitions import SharePartitions
from barnabas.machines.controller.requests import LogDirFailed
from barnabas.machines.controller.topics import TopicDefaults
from barnabas.machines.fetch_session import FetchSessionCache
from barnabas.metadata.images.cache import MetadataCache
from barnabas.metadata.stores.sqlite import SqliteStore, files_of
from barnabas.model.errors import StartupError
from barnabas.model.log_config import UNLIMITED, LogConfig
from barnabas.model.remedies import Remedy, RemedyKind
from barnabas.net.channel import Channel
from barnabas.net.server import Server
from barnabas.storage.files import FileSystem
from barnabas.storage.manager import LogManager

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from concurrent.futures import Executor
    from pathlib import Path
    from typing import Any
    from uuid import UUID

    from barnabas.broker.controller.connection_probe import OpenConnection
    from barnabas.broker.controller.peers import MakeChannel
    from barnabas.broker.faults import FaultInjection
    from barnabas.broker.faults.interceptor import Serve
    from barnabas.broker.metrics.requests import RequestTimes
    from barnabas.broker.security.host_lookups import HostLookups
    from barnabas.broker.serving.login import Logins
    from barnabas.metadata.stores.store import MetadataStore
    from barnabas.model.clock import Clock
    from barnabas.model.config.broker import BrokerConfig
    from barnabas.model.config.values import Values
    from barnabas.net.server import DelayConnection, Limits

SESSION_EVICTION_MS: Final = 120_000
"""How long a fetch session is safe from eviction; fixed in Kafka too."""
SETTLING: Final = 2.0
"""Seconds after which a ZooKeeper has noticed that a session timed out."""


def open_store(config: BrokerConfig) -> MetadataStore:
    """The metadata store that the configuration names, not started yet. Raises StartupError."""
    if config.zookeeper is None:
        return SqliteStore(config.metadata_store)
    if config.metadata_store.exists():
        raise StartupError(
            f"there are two metadata trees: zookeeper.connect is {config.zookeeper}, and {config.metadata_store} is "
            f"there, too. To use ZooKeeper, move {' and '.join(map(str, files_of(config.metadata_store)))} away; to "
            "use the file, start without zookeeper.connect"
        ).with_remedy(Remedy(RemedyKind.UNSET_CONFIG, "zookeeper.connect"))
    from barnabas.metadata.stores.zookeeper import Login, ZooKeeperStore
    from barnabas.model.config.zookeeper_tls import zookeeper_tls
    from barnabas.net.contexts import ClientContexts

    username = config.text_or_none("zookeeper.auth.username")
    password = config.text_or_none("zookeeper.auth.password")
    session = config.number("zookeeper.session.timeout.ms")
    connection = config.number_or_none("zookeeper.connection.timeout.ms")
    tls = zookeeper_tls(config)
    return ZooKeeperStore(
        config.zookeeper,
        session_timeout=session / 1000,
        connect_timeout=(session if connection is None else connection) / 1000,
        login=Login(config.text("zookeeper.auth.scheme"), username, password) if username and password else None,
        private=config.flag("zookeeper.set.acl"),
        tls=None if tls is None else ClientContexts(tls),
    )


def _run_on_uvloop(main: Coroutine[Any, Any, None]) -> None:
    import uvloop

    uvloop.run(main)


def _new_fetch_session_id() -> int:
    return int.from_bytes(os.urandom(8), "big") % (2**31 - 1) + 1


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerOptions:
    """The parts that a test or a simulation replaces; the defaults are a real broker's."""

    clock: Clock = field(default_factory=SystemClock)
    files: FileSystem = field(default_factory=FileSystem)
    """Everything below log.dirs goes through it."""
    open_store: Callable[[BrokerConfig], MetadataStore] = open_store
    """Makes the metadata store of each session."""
    make_logs: Callable[..., LogManager] = LogManager
    make_replicas: type[ReplicaManager] = ReplicaManager
    make_shares: type[SharePartitions] = SharePartitions
    make_executor: Callable[[int, str], Executor] = ThreadPoolExecutor
    """Makes the pools of threads, for the disk, for logs and for opening batches: so many threads, with this name."""
    make_server: Callable[[Serve, Limits, Executor, DelayConnection], Server] = Server
    """Makes what clients and other brokers connect to."""
    make_channel: MakeChannel = Channel
    """Makes a connection to another broker."""
    open_connection: OpenConnection = asyncio.open_connection
    """Opens the connections that show whether another broker is up."""
    run_event_loop: Callable[[Coroutine[Any, Any, None]], None] = _run_on_uvloop
    """Runs the whole broker (`app.run`); brokers that share a process have one loop instead."""

    @property
    def opens_configured_store(self) -> bool:
        """Whether the store is the one that the configuration names."""
        return self.open_store is open_store

    host_lookups: HostLookups | None = None
    """Finds the addresses of hosts that quotas name; made when the first does."""
    make_id: Callable[[], UUID] = new_id
    """Makes ids of topics and clusters."""
    make_fetch_session_id: Callable[[], int] = _new_fetch_session_id
    faults_socket: Path | None = None
    """Where a test sets faults (`broker/faults`)."""


class Assembly(NamedTuple):
    """A broker that is put together and not started."""

    broker: BrokerContext
    inter_broker: InterBrokerWork
    dispatcher: Dispatcher
    logins: Logins | None
    housekeeping: Housekeeping
    cleaning: CleanerThreads
    faults: FaultInjection | None
    serve: Serve
    """What serves requests: the dispatcher, or what was put before it, to watch requests or to let them fail."""
    request_times: RequestTimes | None
    """How long requests take, where there is a metrics listener."""
    options: BrokerOptions


def assemble(
    config: BrokerConfig, options: BrokerOptions | None = None, on_duplicate: Callable[[], None] = lambda: None
) -> Assembly:
    """Make a broker's parts. `on_duplicate` is called when another broker has taken its id, and it has to stop."""
    options = options or BrokerOptions()
    number, broker_id, clock = config.number, config.node_id, options.clock
    executor = options.make_executor(number("num.io.threads"), "disk")
    metadata = MetadataCache()
    settings = Settings(config, metadata)  # first of all subscribers: the others find new values there
    logs = options.make_logs(
        config.log_dirs,
        clock=clock,
        default_config=LogConfig(retention_ms=UNLIMITED),  # for logs that belong to no topic: they are left alone
        files=options.files,
        recovery_threads=number("num.recovery.threads.per.data.dir"),
        producer_id_expiration_ms=number("producer.id.expiration.ms"),
        make_executor=options.make_executor,
    )
    certificates = optional_parts.certificates(settings)
    client_tls = _no_tls if certificates is None else certificates.client
    probe = ConnectionProbe(options.open_connection)
    broker_login = optional_parts.broker_login(settings, clock)
    handshake = BrokerHandshake(broker_id, metadata, lambda: membership.secret, broker_login)
    peers = Peers(broker_id, metadata, settings, handshake, client_tls, options.make_channel)
    permissions = optional_parts.permissions(config, clock)
    acls = optional_parts.acl_follower(permissions)
    membership = ClusterMembership(
        lambda: options.open_store(config),
        metadata,
        clock,
        MembershipOptions(
            topic_defaults=_topic_defaults(config),
            id_timeout=0.0 if config.zookeeper is None else number("zookeeper.session.timeout.ms") / 1000 + SETTLING,
            on_duplicate=on_duplicate,
            updaters=BrokerUpdaters(
                broker_id,
                peers,
                settings,
                lambda lost_by, keys: controller.decide(LogDirFailed(lost_by, keys)),
            ),
            probe=probe,
            make_id=options.make_id,
            acls=acls,
        ),
    )
    controller = membership.controller
    strays = Strays(
        broker_id, logs, lambda: membership.store, executor, is_controller=lambda: membership.controller.is_active
    )
    replicas = options.make_replicas(broker_id, logs, settings, metadata, executor, strays)
    link = ControllerLink(broker_id, membership, peers, metadata, settings)
    fetchers = FetcherManager(
        replicas,
        peers,
        FetcherContext(
            broker_id=broker_id,
            broker_epoch=lambda: membership.broker_epoch,
            settings=settings,
            clock=clock,
            executor=executor,
            throttle=ReplicationThrottle(broker_id, settings, leads=False),
            logs=replicas,
        ),
    )
    isr_manager = IsrManager(replicas, link, settings)
    producer_ids = ProducerIdSource(membership.allocate_producer_ids)
    parts = CoordinatorParts(replicas, metadata, clock, executor)
    groups = GroupCoordinators(parts, settings)
    quotas = ClientQuotas(settings, clock, options.host_lookups)
    broker = BrokerContext(
        broker_id=broker_id,
        settings=settings,
        clock=clock,
        logs=logs,
        replicas=replicas,
        metadata=metadata,
        membership=membership,
        controller=controller,
        controller_link=link,
        peers=peers,
        handshake=handshake,
        probe=probe,
        leader_throttle=ReplicationThrottle(broker_id, settings, leads=True),
        certificates=certificates,
        producer_ids=producer_ids,
        fetch_sessions=FetchSessionCache(
            slots=number("max.incremental.fetch.session.cache.slots"),
            eviction_ms=SESSION_EVICTION_MS,
            new_id=options.make_fetch_session_id,
        ),
        tokens=optional_parts.delegation_tokens(settings, membership, clock),
        quotas=quotas,
        groups=groups,
        transactions=TransactionCoordinators(
            broker_id, parts, settings, groups=groups, peers=peers, producer_ids=producer_ids
        ),
        share_coordinators=ShareCoordinators(parts, settings),
        shares=options.make_shares(lambda: broker),
        executor=executor,
        validation_pool=ValidationPool(_waiting_bytes(config), options.make_executor(THREADS, "records")),
        permissions=permissions,
        acls=acls,
        telemetry=optional_parts.telemetry(settings),
    )
    groups.keep_states_by(partial(optional_parts.share_persister, broker))
    replicas.attach(fetchers, isr_manager)
    membership.fence.subscribe(replicas)
    membership.fence.subscribe(broker.shares)
    replicas.on_failure(membership.fence.part_failed)
    metadata.subscribe(replicas.on_change)
    metadata.subscribe(broker.shares.on_change)
    metadata.subscribe(quotas.on_change)
    if acls is not None:
        metadata.subscribe(acls.on_change)
    settings.subscribe(replicas.on_settings)
    dispatcher = Dispatcher(broker)
    faults = optional_parts.fault_injection(broker, dispatcher.serve, options.faults_socket)
    serve = dispatcher.serve if faults is None else faults.serve
    request_times = optional_parts.request_times(config, clock, serve)
    serve = serve if request_times is None else request_times.serve
    return Assembly(
        broker=broker,
        inter_broker=InterBrokerWork(
            metadata=metadata,
            peers=peers,
            fetchers=fetchers,
            isr_manager=isr_manager,
            failed_logs=FailedLogs(broker_id, replicas, link, metadata),
            failure_detector=FailureDetector(broker_id, membership, peers, metadata, probe),
            leader_balancer=LeaderBalancer(controller, metadata, settings),
            strays=strays,
        ),
        dispatcher=dispatcher,
        logins=optional_parts.logins(broker, serve),
        housekeeping=Housekeeping(broker),
        cleaning=CleanerThreads(broker),
        faults=faults,
        serve=serve,
        request_times=request_times,
        options=options,
    )


def _no_tls() -> None:
    """The context of connections to other brokers, which talk without TLS."""


def _topic_defaults(config: BrokerConfig) -> TopicDefaults:
    return TopicDefaults(
        config.number("num.partitions"),
        config.number("default.replication.factor"),
        unclean_elections=config.flag("unclean.leader.election.enable"),
    )


def _waiting_bytes(values: Values) -> int:
    """The most bytes of requests that wait for their batches to be opened."""
    set_by_user = values.number("queued.max.request.bytes")
    return set_by_user if set_by_user > 0 else 2 * values.number("socket.request.max.bytes")
