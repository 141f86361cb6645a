"""Listeners: named addresses that the broker listens on, and those that it gives to clients.

The rules are Kafka's: names are unique and upper case, two listeners share a port only as an IPv4 and IPv6 pair, every
advertised name is listened on, and brokers need one listener among themselves. The metrics listener stands apart: it
speaks HTTP, and is no address of Kafka's clients.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, NamedTuple

from barnabas.model.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from barnabas.model.config.values import Values

PLAINTEXT: Final = "PLAINTEXT"
PROTOCOLS: Final = (PLAINTEXT, "SSL", "SASL_PLAINTEXT", "SASL_SSL")
TLS_PROTOCOLS: Final = frozenset({"SSL", "SASL_SSL"})
SASL_PROTOCOLS: Final = frozenset({"SASL_PLAINTEXT", "SASL_SSL"})

METRICS: Final = "METRICS"
"""Its name among listeners: listener.name.metrics.ssl.keystore.location is its keystore."""
LOOPBACK: Final = "localhost"
_METRICS_ADDRESS: Final = re.compile(r"(?:(\[[0-9a-zA-Z\-%._:]*\]|[0-9a-zA-Z\-%._]*):)?([0-9]+)")

_ENDPOINT: Final = re.compile(r"(.+)://(\[[0-9a-zA-Z\-%._:]*\]|[0-9a-zA-Z\-%._]*):([0-9]+)")


class Listener(NamedTuple):
    """A named address; an empty host stands for every interface, port 0 for one that the system picks."""

    name: str
    host: str
    port: int
    protocol: str = PLAINTEXT

    @property
    def uses_tls(self) -> bool:
        """Whether its connections are encrypted."""
        return self.protocol in TLS_PROTOCOLS

    @property
    def uses_sasl(self) -> bool:
        """Whether its clients log in."""
        return self.protocol in SASL_PROTOCOLS

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.name}://{host}:{self.port}"


def parse_protocol_map(text: str) -> dict[str, str]:
    """Read listener.security.protocol.map."""
    protocols: dict[str, str] = {}
    for entry in filter(None, (part.strip() for part in text.split(","))):
        name, colon, protocol = entry.rpartition(":")
        name, protocol = name.strip().upper(), protocol.strip().upper()
        if not colon or protocol not in PROTOCOLS:
            raise ConfigError(
                f"listener.security.protocol.map has the entry {entry!r}: "
                f"write NAME:PROTOCOL, where PROTOCOL is one of {', '.join(PROTOCOLS)}"
            )
        if name in protocols:
            raise ConfigError(f"listener.security.protocol.map names the listener {name} twice: keep one entry")
        protocols[name] = protocol
    return protocols


def parse_listeners(key: str, entries: Iterable[str], protocols: Mapping[str, str]) -> tuple[Listener, ...]:
    """Read a list of NAME://HOST:PORT; errors name `key`."""
    return tuple(_parse(key, entry, protocols) for entry in entries)


def _parse(key: str, entry: str, protocols: Mapping[str, str]) -> Listener:
    match = _ENDPOINT.fullmatch(entry)
    if match is None:
        raise ConfigError(f"{key} has the entry {entry!r}: write NAME://HOST:PORT, for example PLAINTEXT://:9092")
    name, host, port = match[1].strip().upper(), match[2].strip("[]"), int(match[3])
    if port > 65535:
        raise ConfigError(f"{key} has the entry {entry!r}: a port is a number from 0 to 65535")
    if name not in protocols:
        raise ConfigError(
            f"{key} names the listener {name}, which listener.security.protocol.map does not have: "
            f"add {name}:{PLAINTEXT} to it"
        )
    return Listener(name, host, port, protocols[name])


def check_listeners(listeners: tuple[Listener, ...]) -> None:
    """Refuse names or ports that are used twice."""
    _check_names("listeners", listeners)
    for first, second in _pairs(listeners):
        if first.port == second.port != 0 and not _are_v4_and_v6(first.host, second.host):
            raise ConfigError(
                f"listeners uses port {first.port} for {first.name} and for {second.name}: give each its own port"
            )


def check_advertised(advertised: tuple[Listener, ...], listeners: tuple[Listener, ...]) -> None:
    """Refuse advertised addresses that no client could use, or that nothing listens on."""
    _check_names("advertised.listeners", advertised)
    known = {listener.name for listener in listeners}
    for listener in advertised:
        if listener.name not in known:
            raise ConfigError(
                f"advertised.listeners names {listener.name}, which is not in listeners "
                f"({', '.join(sorted(known))}): advertise only listeners of this broker"
            )
        if listener.host in ("0.0.0.0", "::"):
            raise ConfigError(
                f"advertised.listeners has {listener}: clients cannot connect to {listener.host}; name another"
            )


def _check_names(key: str, listeners: tuple[Listener, ...]) -> None:
    for first, second in _pairs(listeners):
        if first.name == second.name:
            raise ConfigError(f"{key} has two listeners named {first.name}: give each its own name")


def _pairs(listeners: tuple[Listener, ...]) -> Iterable[tuple[Listener, Listener]]:
    return ((first, second) for n, first in enumerate(listeners) for second in listeners[n + 1 :])


def _are_v4_and_v6(first: str, second: str) -> bool:
    def is_v4(host: str) -> bool:
        return re.fullmatch(r"\d{1,3}(\.\d{1,3}){3}", host, re.ASCII) is not None

    return (is_v4(first) and ":" in second) or (":" in first and is_v4(second))


# Metrics


class MetricsAddress(NamedTuple):
    """Where to listen, and how."""

    host: str
    port: int
    uses_tls: bool

    @property
    def scheme(self) -> str:
        """Of its URLs."""
        return "https" if self.uses_tls else "http"

    @property
    def listener(self) -> Listener:
        """The same as a listener, with the certificates of one."""
        return Listener(METRICS, self.host, self.port, "SSL" if self.uses_tls else "PLAINTEXT")


def metrics_listener(values: Values) -> MetricsAddress | None:
    """Where figures are told; None if nowhere. A port alone is one of the loopback. Raises ConfigError."""
    text = values.text_or_none("metrics.listener")
    if not text:
        return None
    match = _METRICS_ADDRESS.fullmatch(text.strip())
    if match is None or int(match[2]) > 65535:
        raise ConfigError(f"metrics.listener is {text!r}: write HOST:PORT or PORT, for example localhost:9404")
    host = (match[1] or "").strip("[]") or LOOPBACK
    return MetricsAddress(host, int(match[2]), values.text("metrics.security.protocol") == "SSL")
