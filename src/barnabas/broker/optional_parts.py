"""The parts that only some brokers have: TLS, logins, permissions, delegation tokens, queues, metrics, faults.

Whoever configures none of them gets None, and the modules behind them are not loaded: a plain broker starts faster and
takes less memory (`tests/unit/broker/test_start.py` has the list).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.model.config.authorizer import has_authorizer, super_users
from barnabas.model.config.listeners import metrics_listener

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from barnabas.broker.context import BrokerContext
    from barnabas.broker.controller.membership import ClusterMembership
    from barnabas.broker.coordinators.share_persister import CoordinatorPersister
    from barnabas.broker.faults import FaultInjection
    from barnabas.broker.faults.interceptor import Serve
    from barnabas.broker.metrics.requests import RequestTimes
    from barnabas.broker.metrics.telemetry import TelemetryReceiver
    from barnabas.broker.permissions.access import Permissions
    from barnabas.broker.permissions.following import AclFollower
    from barnabas.broker.security.delegation_tokens import DelegationTokens
    from barnabas.broker.serving.certificates import Certificates
    from barnabas.broker.serving.login import Logins
    from barnabas.broker.settings import Settings
    from barnabas.model.clock import Clock
    from barnabas.model.config.broker import BrokerConfig
    from barnabas.net.channel import Ask


def certificates(settings: Settings) -> Certificates | None:
    """The certificates of listeners with TLS, if there is one; that of metrics counts, too."""
    metrics = metrics_listener(settings.static)
    if not any(listener.uses_tls for listener in settings.static.listeners) and not (metrics and metrics.uses_tls):
        return None
    from barnabas.broker.serving.certificates import Certificates

    return Certificates(settings)


def logins(broker: BrokerContext, serve: Serve) -> Logins | None:
    """The logins of listeners with SASL, if there is one; `serve` serves requests after a login."""
    settings = broker.settings
    if not any(listener.uses_sasl for listener in settings.static.listeners):
        return None
    from barnabas.broker.security.mechanisms import Mechanisms
    from barnabas.broker.serving.login import Logins

    membership = broker.membership
    mechanisms = Mechanisms(settings, broker.metadata, lambda: membership.secret, broker.clock, broker.tokens)
    return Logins(settings, mechanisms, broker.clock, serve)


def broker_login(settings: Settings, clock: Clock) -> Callable[[Ask, str], Awaitable[float | None]] | None:
    """How this broker logs in to others, if their listener uses SASL."""
    name = settings.static.inter_broker_listener
    if not any(listener.name == name and listener.uses_sasl for listener in settings.static.listeners):
        return None
    from barnabas.broker.security.broker_login import BrokerLogins

    return BrokerLogins(settings, clock).log_in


def delegation_tokens(settings: Settings, membership: ClusterMembership, clock: Clock) -> DelegationTokens | None:
    """The cluster's delegation tokens, if there is a key to make them with."""
    key = settings.static.text_or_none("delegation.token.secret.key")
    if not key:
        return None
    from barnabas.broker.security.delegation_tokens import DelegationTokens

    return DelegationTokens(key, settings, lambda: membership.store, clock)


def permissions(config: BrokerConfig, clock: Clock) -> Permissions | None:
    """Who may do what, until the ACLs are read only super users; None without an authorizer. Raises ConfigError."""
    if not has_authorizer(config):
        return None
    from barnabas.broker.permissions.access import Permissions
    from barnabas.broker.permissions.audit import AuditLog
    from barnabas.machines.security.authorizer import Authorizer

    rules = Authorizer(super_users=super_users(config), allow_if_no_acl=config.flag("allow.everyone.if.no.acl.found"))
    return Permissions(rules, AuditLog(clock.monotonic))


def acl_follower(permissions: Permissions | None) -> AclFollower | None:
    """What brings the ACLs from the metadata tree to the permissions."""
    if permissions is None:
        return None
    from barnabas.broker.permissions.following import AclFollower

    return AclFollower(permissions)


def fault_injection(broker: BrokerContext, serve: Serve, socket: Path | None) -> FaultInjection | None:
    """The faults of a broker for tests, which are set over a socket."""
    if socket is None:
        return None
    from barnabas.broker.faults import FaultInjection

    return FaultInjection(broker, serve, socket)


def telemetry(settings: Settings) -> TelemetryReceiver | None:
    """What passes on the metrics of clients, if somebody wants them."""
    if not settings.text_or_none("telemetry.otlp.endpoint"):
        return None
    from barnabas.broker.metrics.telemetry import TelemetryReceiver

    return TelemetryReceiver(settings)


def request_times(config: BrokerConfig, clock: Clock, serve: Serve) -> RequestTimes | None:
    """How long requests take, where there is a metrics listener; it watches what `serve` does."""
    if metrics_listener(config) is None:
        return None
    from barnabas.broker.metrics.requests import RequestTimes

    slow_ms = config.number("slow.request.ms")
    return RequestTimes(serve, clock.now_ms, None if slow_ms < 0 else slow_ms / 1000)


def share_persister(broker: BrokerContext) -> CoordinatorPersister:
    """Where group coordinators keep the states of share partitions; called when the first group needs it."""
    from barnabas.broker.coordinators.share_persister import CoordinatorPersister

    return CoordinatorPersister(broker)
