"""The two brokers with listeners for TLS and for logins beside the plain one, with the same certificate and settings.

Both speak TLS 1.3 with the one cipher suite that they are given; a row may ask which one a connection got.
"""

from __future__ import annotations

import socket
import ssl
from typing import TYPE_CHECKING, Final

from tests.support.certificates import Authority
from tests.support.processes import free_port

from bench.brokers import SETTINGS, Barnabas, Broker, Kafka
from bench.clients import logins

if TYPE_CHECKING:
    from pathlib import Path

    from bench.brokers import Ready

SUITE: Final = "TLS_AES_256_GCM_SHA384"
_PROTOCOLS: Final = "PLAINTEXT:PLAINTEXT,TLS:SSL,LOGIN:SASL_PLAINTEXT"


class Secured(Broker):
    """A broker with three listeners, at which the same topics are served."""

    def __init__(self, folder: Path, open_files: int | None = None) -> None:
        self.tls_port = free_port()
        self.login_port = free_port()
        self.authority = folder / "authority.pem"
        super().__init__(folder, open_files)

    def prepare(self) -> None:
        """Make a certificate, and settings that name it."""
        authority = Authority()
        authority.write(self.authority)
        issued = authority.issue("127.0.0.1", common_name="broker")
        store = issued.write(self.folder / "broker.pem", issued.pkcs8_key + issued.certificate)
        self.settings = {
            **SETTINGS,
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(store),
            "ssl.enabled.protocols": "TLSv1.3",
            "ssl.cipher.suites": SUITE,
            "sasl.enabled.mechanisms": logins.MECHANISM,
            f"listener.name.login.{logins.MECHANISM.lower()}.sasl.jaas.config": f"{logins.MODULE} required;",
        }
        super().prepare()

    def start(self, ready: Ready = lambda metadata: True) -> float:
        """Start the broker, and let the one user log in."""
        seconds = super().start(ready)
        logins.add_user(self.port)
        return seconds

    def client_context(self) -> ssl.SSLContext:
        """What a client needs to trust it."""
        return ssl.create_default_context(cafile=str(self.authority))

    def check_suite(self) -> None:
        """Fail if a client does not get the suite that is to be compared."""
        with (
            socket.create_connection(("127.0.0.1", self.tls_port), 30) as plain,
            self.client_context().wrap_socket(plain, server_hostname="127.0.0.1") as connection,
        ):
            found = connection.cipher()
        if found is None or found[0] != SUITE:
            raise RuntimeError(f"{self.name} chose {found} instead of {SUITE}")

    def _listeners(self, *more: str) -> dict[str, str]:
        places = {"PLAINTEXT": self.port, "TLS": self.tls_port, "LOGIN": self.login_port}
        return {
            "listeners": ",".join([*(f"{name}://127.0.0.1:{port}" for name, port in places.items()), *more]),
            "listener.security.protocol.map": _PROTOCOLS,
            "inter.broker.listener.name": "PLAINTEXT",
        }


class SecuredKafka(Secured, Kafka):
    """Apache Kafka."""

    def server_settings(self) -> dict[str, str]:
        """As without security, with more listeners."""
        known = super().server_settings()
        controller = known["listeners"].split(",")[-1]
        return {
            **known,
            **self._listeners(controller),
            "listener.security.protocol.map": f"{_PROTOCOLS},CONTROLLER:PLAINTEXT",
        }


class SecuredBarnabas(Secured, Barnabas):
    """Barnabas."""

    def server_settings(self) -> dict[str, str]:
        """As without security, with more listeners."""
        return {**super().server_settings(), **self._listeners()}


SECURED: Final[tuple[type[Secured], ...]] = (SecuredKafka, SecuredBarnabas)
