"""How a connection is made safe: TLS, and SASL with a password or token, from librdkafka's property names or Java's.

One properties file serves librdkafka and our own connections, so the names here are librdkafka's; those that Java's
clients have instead are translated (`clients/java_properties`). Other properties are ignored. What we cannot do is an
error that says so: a connection is never less safe than the file asks for.
"""

from __future__ import annotations

import secrets
import ssl
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from barnabas.clients.errors import InvalidClientConfig
from barnabas.clients.java_properties import from_java
from barnabas.machines.security.scram import BY_TITLE, ScramClient, ScramClientError
from barnabas.model.errors import ConfigError
from barnabas.net import keystores

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable, Mapping

    Exchange = Callable[[bytes], bytes]
    """Sends a client's message of a SASL exchange and returns the broker's."""

OF_SECURITY: Final = ("security.", "ssl.", "sasl.", "enable.ssl.", "enable.sasl.")
"""How the names of such properties begin."""
PROTOCOLS: Final = ("plaintext", "ssl", "sasl_plaintext", "sasl_ssl")


class _Gone(OSError):
    """The other end closed the connection before TLS began."""


class _ClosedIfGone(ssl.SSLSocket):
    """A socket that is closed if its other end is gone before TLS begins: Python leaves it open then."""

    def getpeername(self) -> Any:
        """See socket; the first thing that a new socket is asked."""
        try:
            return super().getpeername()
        except OSError as error:
            self.close()
            raise _Gone from error


@dataclass(frozen=True, slots=True)
class Security:
    """What has to happen to a new connection before the first request."""

    tls: ssl.SSLContext | None = None
    mechanism: str | None = None
    username: str = ""
    password: str = ""
    token: Callable[[str], tuple[str, float]] | None = None
    """Gives the token of OAUTHBEARER and when it ends, as librdkafka's oauth_cb does."""

    def wrap(self, plain: socket.socket, host: str) -> socket.socket:
        """The connection, encrypted if it has to be."""
        if self.tls is None:
            return plain
        self.tls.sslsocket_class = _ClosedIfGone
        try:
            return self.tls.wrap_socket(plain, server_hostname=host)
        except _Gone as error:
            raise ConnectionResetError(f"{host} closed the connection before TLS began") from error

    def authenticate(self, exchange: Exchange) -> None:
        """Say who we are, by the chosen mechanism."""
        if self.mechanism == "PLAIN":
            exchange(f"\0{self.username}\0{self.password}".encode())
        elif self.token is not None:
            refusal = exchange(f"n,,\x01auth=Bearer {self.token('')[0]}\x01\x01".encode())
            if refusal:  # the broker ends the exchange with its error once it has this byte
                exchange(b"\x01")
        elif self.mechanism is not None:
            scram(self.mechanism, self.username, self.password, exchange)


def security_properties(properties: Mapping[str, object]) -> dict[str, str]:
    """Those of a client's properties that are about security: another client of the same cluster needs them too."""
    return {name: str(value) for name, value in properties.items() if name.startswith(OF_SECURITY)}


def from_properties(properties: Mapping[str, Any]) -> Security:
    """The security that a client's properties describe; raises InvalidClientConfig."""
    properties = from_java(properties)
    protocol = properties.get("security.protocol", "plaintext").lower()
    if protocol not in PROTOCOLS:
        raise InvalidClientConfig(f"security.protocol is {protocol}, and not one of {', '.join(PROTOCOLS)}")
    tls = _tls(properties) if protocol.endswith("ssl") else None
    if not protocol.startswith("sasl"):
        return Security(tls)
    mechanism = properties.get("sasl.mechanism", properties.get("sasl.mechanisms", "GSSAPI")).upper()
    if mechanism == "OAUTHBEARER" and callable(properties.get("oauth_cb")):
        return Security(tls, mechanism, token=properties["oauth_cb"])
    if mechanism != "PLAIN" and mechanism not in BY_TITLE:
        raise InvalidClientConfig(
            f"sasl.mechanism {mechanism} works only in connections of librdkafka, and this is not one of them: it "
            f"takes PLAIN, {' and '.join(BY_TITLE)}"
        )
    if not properties.get("sasl.username") or "sasl.password" not in properties:
        raise InvalidClientConfig(f"sasl.mechanism {mechanism} needs sasl.username and sasl.password")
    return Security(tls, mechanism, properties["sasl.username"], properties["sasl.password"])


def _tls(properties: Mapping[str, str]) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(
            cafile=properties.get("ssl.ca.location"), cadata=properties.get("ssl.ca.pem")
        )
        _load_own_certificate(context, properties)
    except OSError as error:  # an SSLError is one too
        raise InvalidClientConfig(f"a file of the ssl.* properties cannot be used: {error}") from error
    except ConfigError as error:
        raise InvalidClientConfig(str(error)) from error
    verify = properties.get("enable.ssl.certificate.verification", "true") != "false"
    if not verify or properties.get("ssl.endpoint.identification.algorithm", "https") == "none":
        context.check_hostname = False
    if not verify:
        context.verify_mode = ssl.CERT_NONE
    return context


def _load_own_certificate(context: ssl.SSLContext, properties: Mapping[str, str]) -> None:
    """Show a certificate of one's own, if there is one: from files in PEM, texts in PEM, or PKCS12."""
    password = properties.get("ssl.key.password")
    if certificate := properties.get("ssl.certificate.location"):
        context.load_cert_chain(certificate, properties.get("ssl.key.location"), password or "")  # "": ask nobody
    elif "ssl.certificate.pem" in properties:
        key, chain = properties.get("ssl.key.pem", ""), properties["ssl.certificate.pem"]
        keystores.pem_pair(key, chain, password, "ssl.key.pem", "ssl.certificate.pem").load_into(context)
    elif location := properties.get("ssl.keystore.location"):
        name = f"ssl.keystore.location {location}"
        data = keystores.read_store(location, name)
        keystores.pkcs12_pair(data, properties.get("ssl.keystore.password"), name, location).load_into(context)


def scram(title: str, username: str, password: str, exchange: Exchange, nonce: str | None = None) -> None:
    """The client's side of SCRAM; raises InvalidClientConfig if the broker does not know the password either."""
    client = ScramClient(BY_TITLE[title], username, password, nonce or secrets.token_urlsafe(24))
    try:
        client.check(exchange(client.prove(exchange(client.opening))))
    except ScramClientError as error:
        raise InvalidClientConfig(f"{error} of sasl.username") from error
