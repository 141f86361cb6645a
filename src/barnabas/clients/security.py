"""How a connection is made safe: TLS, and SASL with a password, from librdkafka's property names.

One properties file serves librdkafka and our own connections, so the names here are librdkafka's. Properties that have
nothing to do with security are none of our business. What we cannot do is an error that says so: a connection is never
less safe than the file asks for.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets
import ssl
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from barnabas.clients.errors import InvalidClientConfig

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable, Mapping

    Exchange = Callable[[bytes], bytes]
    """Sends a client's message of a SASL exchange and returns the broker's."""

SCRAM_HASHES: Final = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
NOT_FROM_FILES: Final = ("ssl.keystore.location", "ssl.certificate.pem", "ssl.key.pem")
"""How librdkafka takes a client's own certificate as well, and Python does not."""
PROTOCOLS: Final = ("plaintext", "ssl", "sasl_plaintext", "sasl_ssl")


@dataclass(frozen=True, slots=True)
class Security:
    """What has to happen to a new connection before the first request."""

    tls: ssl.SSLContext | None = None
    mechanism: str | None = None
    username: str = ""
    password: str = ""

    def wrap(self, plain: socket.socket, host: str) -> socket.socket:
        """The connection, encrypted if it has to be."""
        return plain if self.tls is None else self.tls.wrap_socket(plain, server_hostname=host)

    def authenticate(self, exchange: Exchange) -> None:
        """Say who we are, by the chosen mechanism."""
        if self.mechanism == "PLAIN":
            exchange(f"\0{self.username}\0{self.password}".encode())
        elif self.mechanism is not None:
            scram(SCRAM_HASHES[self.mechanism], self.username, self.password, exchange)


def from_properties(properties: Mapping[str, str]) -> Security:
    """The security that a client's properties describe; raises InvalidClientConfig."""
    protocol = properties.get("security.protocol", "plaintext").lower()
    if protocol not in PROTOCOLS:
        raise InvalidClientConfig(f"security.protocol is {protocol}, and not one of {', '.join(PROTOCOLS)}")
    tls = _tls(properties) if protocol.endswith("ssl") else None
    if not protocol.startswith("sasl"):
        return Security(tls)
    mechanism = properties.get("sasl.mechanism", properties.get("sasl.mechanisms", "GSSAPI")).upper()
    if mechanism != "PLAIN" and mechanism not in SCRAM_HASHES:
        raise InvalidClientConfig(
            f"sasl.mechanism {mechanism} does not work with this command: it knows PLAIN, {' and '.join(SCRAM_HASHES)}"
        )
    if not properties.get("sasl.username") or "sasl.password" not in properties:
        raise InvalidClientConfig(f"sasl.mechanism {mechanism} needs sasl.username and sasl.password")
    return Security(tls, mechanism, properties["sasl.username"], properties["sasl.password"])


def _tls(properties: Mapping[str, str]) -> ssl.SSLContext:
    for name in NOT_FROM_FILES:
        if name in properties:
            raise InvalidClientConfig(
                f"{name} does not work here: give files in PEM with ssl.certificate.location and ssl.key.location"
            )
    try:
        context = ssl.create_default_context(
            cafile=properties.get("ssl.ca.location"), cadata=properties.get("ssl.ca.pem")
        )
        if certificate := properties.get("ssl.certificate.location"):
            key, password = properties.get("ssl.key.location"), properties.get("ssl.key.password")
            context.load_cert_chain(certificate, key, password)
    except OSError as error:  # an SSLError is one too
        raise InvalidClientConfig(f"a file of the ssl.* properties cannot be used: {error}") from error
    verify = properties.get("enable.ssl.certificate.verification", "true") != "false"
    if not verify or properties.get("ssl.endpoint.identification.algorithm", "https") == "none":
        context.check_hostname = False
    if not verify:
        context.verify_mode = ssl.CERT_NONE
    return context


def scram(algorithm: str, username: str, password: str, exchange: Exchange, nonce: str | None = None) -> None:
    """The client's side of RFC 5802; raises InvalidClientConfig if the broker does not know the password either."""
    name = username.replace("=", "=3D").replace(",", "=2C")
    client_first = f"n={name},r={nonce or secrets.token_urlsafe(24)}"
    server_first = exchange(f"n,,{client_first}".encode()).decode()
    told = dict(part.split("=", 1) for part in server_first.split(","))
    salted = hashlib.pbkdf2_hmac(algorithm, password.encode(), base64.b64decode(told["s"]), int(told["i"]))

    def sign(key: bytes, message: bytes) -> bytes:
        return hmac.digest(key, message, algorithm)

    client_key = sign(salted, b"Client Key")
    without_proof = f"c={base64.b64encode(b'n,,').decode()},r={told['r']}"
    signed = f"{client_first},{server_first},{without_proof}".encode()
    signature = sign(hashlib.new(algorithm, client_key).digest(), signed)
    proof = bytes(ours ^ theirs for ours, theirs in zip(client_key, signature, strict=True))
    final = exchange(f"{without_proof},p={base64.b64encode(proof).decode()}".encode()).decode()
    expected = sign(sign(salted, b"Server Key"), signed)
    if final.partition(",")[0] != f"v={base64.b64encode(expected).decode()}":
        raise InvalidClientConfig("the broker could not prove that it knows the password of sasl.username")
