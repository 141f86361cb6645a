"""How a console was started: which cluster it shows, where it listens, and what it lets people do."""

from __future__ import annotations

from dataclasses import dataclass, field
from ipaddress import ip_address
from typing import TYPE_CHECKING, Final

from barnabas.clients.errors import InvalidClientConfig
from barnabas.clients.java_properties import from_java
from barnabas.clients.scraping import MetricsAccess
from barnabas.model.remedies import Remedy, RemedyKind

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from barnabas.console.messages.masking import MaskRule
    from barnabas.console.oidc import OidcSettings

    WithRemedy = Callable[[str, Remedy], str]
    """Puts behind what happened what to do about it."""

OWN_MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
CERTIFICATES: Final = (
    "ssl.certificate.location",
    "ssl.certificate.pem",
    "ssl.keystore.location",
    "ssl.keystore.certificate.chain",
)
"""Properties that name a certificate of the client's own, in librdkafka's words and Java's."""
NO_USER: Final = (
    "The cluster asks for a login, and the console has no user of its own, in whose name it could look at the cluster."
)
OTHER_LOGIN: Final = (
    "The cluster asks for a login. The console itself can log in with a name and a password (SCRAM, PLAIN), and its "
    "settings have"
)


def is_loopback(host: str) -> bool:
    """Whether only programs on this machine reach an address."""
    if host == "localhost":
        return True
    try:
        return ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def is_local(host: str, behind_proxy: bool) -> bool:
    """Whether only people on this machine reach a console on an address: behind a proxy, others do by any."""
    return is_loopback(host) and not behind_proxy


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
    """Whether there is a proxy in front, which encrypts, and by which others come."""
    with_remedy: WithRemedy = without_words
    """The words of the command line for what to do about an error."""
    start_again: Mapping[int, str] = field(default_factory=dict)
    """What starts a broker again, of those that were started with this console."""

    @property
    def is_local(self) -> bool:
        """Whether only people on this machine reach it."""
        return is_local(self.host, self.behind_proxy)

    @property
    def encrypted(self) -> bool:
        """Whether browsers speak TLS with it."""
        return self.certificate is not None

    @property
    def own_login_failure(self) -> str | None:
        """Why the console itself does not get in; None if it does, or needs no login, as far as its properties say."""
        try:
            properties = from_java(self.properties)
        except InvalidClientConfig as error:
            return f"The console's client settings cannot be used: {error}"
        if not properties.get("security.protocol", "").upper().startswith("SASL"):
            return None
        mechanism = properties.get("sasl.mechanism", properties.get("sasl.mechanisms", ""))
        if mechanism and mechanism.upper() not in OWN_MECHANISMS:
            return f"{OTHER_LOGIN} sasl.mechanism {mechanism}."
        if "sasl.username" in properties:
            return None
        return self.with_remedy(NO_USER, Remedy(RemedyKind.GIVE_CONSOLE_USER))

    @property
    def shows_own_certificate(self) -> bool:
        """Whether brokers know the console by a certificate: nobody logs in then, and whoever comes acts with it."""
        asks = self.properties.get("security.protocol", "").upper().startswith("SASL")
        return not asks and any(name in self.properties for name in CERTIFICATES)

    @property
    def scheme(self) -> str:
        """How its own addresses begin."""
        return "https" if self.encrypted else "http"

    @property
    def browsers_encrypt(self) -> bool:
        """Whether browsers speak HTTPS, with the console or with a proxy in front of it."""
        return self.encrypted or self.behind_proxy
