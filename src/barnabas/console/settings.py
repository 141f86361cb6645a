"""How a console was started: which cluster it shows, where it listens, and what it lets people do."""

from __future__ import annotations

from dataclasses import dataclass, field
from ipaddress import ip_address
from typing import TYPE_CHECKING

from barnabas.clients.scraping import MetricsAccess

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from barnabas.console.messages.masking import MaskRule
    from barnabas.console.oidc import OidcSettings
    from barnabas.model.remedies import Remedy

    WithRemedy = Callable[[str, Remedy], str]
    """Puts behind what happened what to do about it."""


def is_loopback(host: str) -> bool:
    """Whether only programs on this machine reach an address."""
    if host == "localhost":
        return True
    try:
        return ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def without_words(text: str, remedy: Remedy) -> str:
    """What happened, where nobody has words for what to do."""
    return text


@dataclass(frozen=True, slots=True)
class TelemetrySettings:
    """How metrics of clients are taken."""

    token: str | None = None
    """What brokers send as a bearer token; without one only those on this machine may push."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsoleSettings:
    """One console."""

    bootstrap_servers: str
    host: str
    port: int
    properties: Mapping[str, str] = field(default_factory=dict)
    """Properties of the console's own client: how it reaches brokers, and as whom it keeps its history."""
    folder: Path
    """Where history and audit log are."""
    read_only: bool
    hosts: tuple[str, ...] = ()
    """Further names that browsers may know the console by."""
    certificate: Path | None = None
    key: Path | None = None
    masks: tuple[MaskRule, ...] = ()
    schemas: Path | None = None
    """A folder with schemas, named as subjects of a registry are: `orders-value.avsc`."""
    registry: str | None = None
    metrics: tuple[str, ...] = ()
    """Addresses of brokers' metrics, where brokers do not tell them."""
    metrics_access: MetricsAccess = field(default_factory=MetricsAccess)
    oidc: OidcSettings | None = None
    """Who says who people are, besides the cluster's own users."""
    telemetry: TelemetrySettings | None = None
    """Whether brokers may push metrics of clients here."""
    behind_proxy: bool = False
    """Whether a proxy in front encrypts."""
    with_remedy: WithRemedy = without_words
    """The words of the command line for what to do about an error."""

    @property
    def encrypted(self) -> bool:
        """Whether browsers speak TLS with it."""
        return self.certificate is not None

    @property
    def has_own_user(self) -> bool:
        """Whether the console itself gets in: it has a user, or needs none as far as its properties say."""
        asks = self.properties.get("security.protocol", "").upper().startswith("SASL")
        return not asks or "sasl.username" in self.properties or "sasl.jaas.config" in self.properties

    @property
    def scheme(self) -> str:
        """How its own addresses begin."""
        return "https" if self.encrypted else "http"

    @property
    def browsers_encrypt(self) -> bool:
        """Whether browsers speak HTTPS, with the console or with a proxy in front of it."""
        return self.encrypted or self.behind_proxy
