"""What the settings allow connections: how many there may be, of whom, and how large their requests."""

from __future__ import annotations

import logging
import resource
import socket
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from barnabas.model.config.broker import BrokerConfig, parse_connection_overrides
from barnabas.net.admission import ConnectionLimits, ListenerLimits, listener_limit
from barnabas.net.server import Limits

if TYPE_CHECKING:
    from collections.abc import Mapping

    from barnabas.broker.settings import Settings
    from barnabas.model.config.per_listener import ListenerValues

logger = logging.getLogger(__name__)

CONNECTIONS_SHARE: Final = 0.7
"""Of the limit of open files; the rest is for logs and for the broker itself."""


def server_limits(settings: BrokerConfig | Settings) -> Limits:
    """What the settings allow connections, and no more connections than there are descriptors for."""
    number = settings.number
    return Limits(
        request_max_bytes=number("socket.request.max.bytes"),
        queued_max_request_bytes=number("queued.max.request.bytes"),
        send_buffer_bytes=number("socket.send.buffer.bytes"),
        receive_buffer_bytes=number("socket.receive.buffer.bytes"),
        listen_backlog=number("socket.listen.backlog.size"),
        connections=_connection_limits(settings),
        idle_ms=number("connections.max.idle.ms"),
    )


def _connection_limits(settings: BrokerConfig | Settings) -> ConnectionLimits:
    number = settings.number
    static = settings if isinstance(settings, BrokerConfig) else settings.static
    descriptors = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    most = number("max.connections")
    if descriptors != resource.RLIM_INFINITY:
        most = min(most, int(descriptors * CONNECTIONS_SHARE))
    return ConnectionLimits(
        max_connections=most,
        max_connections_per_ip=number("max.connections.per.ip"),
        per_ip_overrides=per_address(settings.text("max.connections.per.ip.overrides")),
        creation_rate=number("max.connection.creation.rate"),
        listeners={each.name: _listener_limits(settings.of_listener(each.name)) for each in static.listeners},
        inter_broker_listener=static.inter_broker_listener if len(static.listeners) > 1 else None,
    )


def _listener_limits(values: ListenerValues) -> ListenerLimits:
    return ListenerLimits(
        max_connections=listener_limit(values.own_value("max.connections")),
        creation_rate=listener_limit(values.own_value("max.connection.creation.rate")),
    )


@lru_cache(maxsize=8)
def per_address(overrides: str) -> Mapping[str, int]:
    """max.connections.per.ip.overrides by address; asks for the addresses of hosts, which may take a while."""
    limits: dict[str, int] = {}
    for host, most in parse_connection_overrides(overrides).items():
        try:
            found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
        except OSError as error:
            logger.warning(
                "Host %s of max.connections.per.ip.overrides is ignored, since its address is unknown: %s", host, error
            )
            continue
        limits.update((str(address[0]), most) for *_, address in found)
    return limits
