"""TLS contexts of OpenSSL from Kafka's ssl.* settings, for listeners and for connections to other brokers.

A context is made anew for each change, and a new one is used from the next connection on: those that are open keep
theirs. What is checked before a new one replaces another stands in `check_successor`.
"""

from __future__ import annotations

import logging
import ssl
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from barnabas.model.certificates import read_certificate
from barnabas.model.config.tls import check_keystore, check_protocols, check_tls, check_truststore
from barnabas.model.errors import ConfigError
from barnabas.net.ciphers import TLS_1_3, openssl_name, restrict
from barnabas.net.keystores import read_key_pair, read_trusted

if TYPE_CHECKING:
    from barnabas.model.certificates import Certificate
    from barnabas.model.config.per_listener import ListenerValues
    from barnabas.net.keystores import KeyPair

logger = logging.getLogger(__name__)

_VERSIONS = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
_CLIENT_AUTH = {"none": ssl.CERT_NONE, "requested": ssl.CERT_OPTIONAL, "required": ssl.CERT_REQUIRED}


@dataclass(frozen=True, slots=True)
class TlsContext:
    """A context, and the certificate that it shows."""

    context: ssl.SSLContext
    certificate: Certificate | None
    """The own certificate, if there is one."""
    ciphers: frozenset[str] | None = None
    """The only suites that may be used, by OpenSSL's names; None for all that OpenSSL takes for safe."""


def listener_context(values: ListenerValues, client_auth: str) -> TlsContext:
    """The context of a listener; raises ConfigError. Reads files."""
    check_tls(values)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_CIPHER_SERVER_PREFERENCE
    made = _context(values, context)
    context.verify_mode = _CLIENT_AUTH[client_auth]
    if client_auth != "none":
        _trust(values, context)
        context.num_tickets = 0  # of TLS 1.3: a certificate is checked with each connection
    return made


def client_context(values: ListenerValues) -> TlsContext:
    """The context of connections to other brokers; raises ConfigError. Reads files."""
    check_keystore(values)
    check_truststore(values)
    check_protocols(values)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = values.text("ssl.endpoint.identification.algorithm").lower() == "https"
    made = _context(values, context)
    _trust(values, context)
    return made


class ClientContexts:
    """Gives the context of each next connection, by the files as they are then; as Kafka reads those for ZooKeeper.

    What cannot be used is told, and the last context stays. The first is made at once, which raises ConfigError.
    """

    def __init__(self, values: ListenerValues) -> None:
        self._values = values
        self._last = client_context(values).context

    def __call__(self) -> ssl.SSLContext:
        """The context. Reads files, so it has to be called in a thread."""
        try:
            self._last = client_context(self._values).context
        except ConfigError as error:
            logger.error("New certificates for %s are not used, the old ones stay: %s", self._values.listener, error)
        return self._last


def _context(values: ListenerValues, context: ssl.SSLContext) -> TlsContext:
    _set_versions(values, context)
    suites = values.items("ssl.cipher.suites")
    if suites:
        restrict(context, suites, values.name_of("ssl.cipher.suites"))
    pair = read_key_pair(values)
    if pair is not None:
        pair.load_into(context)
    return TlsContext(
        context,
        None if pair is None else _own_certificate(pair),
        frozenset(suite if suite in TLS_1_3 else openssl_name(suite) for suite in suites) or None,
    )


def _own_certificate(pair: KeyPair) -> Certificate:
    try:
        return read_certificate(pair.leaf)
    except ValueError as error:  # OpenSSL takes what the reader does not
        raise ConfigError(f"the own certificate in the keystore cannot be read: {error}") from None


def _set_versions(values: ListenerValues, context: ssl.SSLContext) -> None:
    enabled = [_VERSIONS[name] for name in values.items("ssl.enabled.protocols")]
    newest = _VERSIONS.get(values.text("ssl.protocol"))
    context.minimum_version = min(enabled)
    context.maximum_version = max(enabled) if newest is None else min(max(enabled), newest)


def _trust(values: ListenerValues, context: ssl.SSLContext) -> None:
    """Trust the certificates of the truststore, each of them as Java does, or else those that the machine trusts."""
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    trusted = read_trusted(values)
    if trusted is None:
        context.load_default_certs()
        return
    try:
        context.load_verify_locations(cadata=trusted)
    except ssl.SSLError as error:
        raise ConfigError(f"a certificate of the truststore cannot be used: {error.reason or error}") from None


def check_successor(old: TlsContext, new: TlsContext, values: ListenerValues) -> None:
    """Refuse a new certificate that would turn clients away, with ConfigError (KIP-978)."""
    before, after = old.certificate, new.certificate
    if before is None or after is None:
        return
    if after.subject != before.subject and not values.flag("ssl.allow.dn.changes"):
        raise ConfigError(
            f"the new certificate is for {after.subject}, the old one was for {before.subject}: set "
            "ssl.allow.dn.changes=true if that is right"
        )
    if not after.alternative_names >= before.alternative_names and not values.flag("ssl.allow.san.changes"):
        raise ConfigError(
            "the new certificate lacks names of the old one (subject alternative names): set "
            "ssl.allow.san.changes=true if that is right"
        )
    now = datetime.now(UTC)
    if after.not_after < now <= before.not_after:
        raise ConfigError(f"the new certificate has expired at {after.not_after:%Y-%m-%d %H:%M} UTC")


def check_trusts_itself(server: TlsContext, client: TlsContext) -> None:
    """Refuse a certificate that other brokers, with the same settings, would refuse: shake hands in memory."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    check_hostname, client.context.check_hostname = client.context.check_hostname, False
    try:
        here = server.context.wrap_bio(to_server, to_client, server_side=True)
        there = client.context.wrap_bio(to_client, to_server)
        for _ in range(10):
            if all([_step(there), _step(here)]):
                there.write(b"?")
                here.read(1)
                return
    except ssl.SSLError as error:
        reason = getattr(error, "verify_message", None) or error.reason or error
        raise ConfigError(f"brokers would not trust each other with this keystore and truststore: {reason}") from None
    finally:
        client.context.check_hostname = check_hostname
    raise ConfigError("brokers would not finish a TLS handshake with each other with these settings")


def _step(side: ssl.SSLObject) -> bool:
    try:
        side.do_handshake()
    except ssl.SSLWantReadError:
        return False
    return True
