"""Why a broker does not let a client in, in one sentence.

What OpenSSL and sockets raise says little: a client without TLS on a listener with TLS sees a connection that ends. So
where an error does not explain itself, the listener is asked what it speaks: with TLS and without, and by which
mechanisms it takes logins. Whoever asks that gives nothing away.
"""

from __future__ import annotations

import ssl
from typing import TYPE_CHECKING, Final, NamedTuple

from barnabas.clients.errors import BrokerSilent, BrokerUnreachable, LoginFailed, RequestRefused
from barnabas.clients.security import Security, from_properties
from barnabas.clients.wire.addresses import connect
from barnabas.clients.wire.connection import BrokerConnection, ConnectionClosed, Deadline
from barnabas.model.base_error import BarnabasError
from barnabas.model.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Mapping

PROBE_SECONDS: Final = 3.0
LOGIN_SECONDS: Final = 10.0
"""How long a login may take; a broker that takes longer is busy, and the client itself waits for it."""
_EXPIRED: Final = (10,)
_NOT_YET: Final = (9,)
_OTHER_HOST: Final = (62, 64)
"""Numbers that OpenSSL has for what is wrong with a certificate (X509_V_ERR_*); others are about who signed it."""


class ListenerProtocol(NamedTuple):
    """What a listener speaks."""

    uses_tls: bool
    mechanisms: tuple[str, ...]
    """By which it takes logins; none if it asks for no login."""

    @property
    def protocol(self) -> str:
        """As security.protocol has it."""
        return ("SASL_" if self.mechanisms else "") + ("SSL" if self.uses_tls else "PLAINTEXT")


def check_login(bootstrap_servers: str, properties: Mapping[str, str], seconds: float = PROBE_SECONDS) -> None:
    """Connect and log in as a client with these properties would; raises BrokerUnreachable, InvalidClientConfig.

    A client of librdkafka would go on trying, and log each time. Mechanisms that only librdkafka has are left to it.
    """
    plain, host, _ = connect(bootstrap_servers, seconds)
    with plain:
        try:
            security = from_properties(properties)
        except BarnabasError:
            return
        try:
            connection = BrokerConnection(plain, host, security, Deadline(LOGIN_SECONDS))
            try:
                connection.check_is_served(Deadline(LOGIN_SECONDS))
            finally:
                connection.close()
        except (OSError, RequestRefused) as error:
            failure: BrokerUnreachable | None = explain(bootstrap_servers, host, security, error)
            if failure is None and isinstance(error, TimeoutError):
                return
            if failure is None and isinstance(error, OSError):
                failure = BrokerSilent(f"{bootstrap_servers} takes connections, but: {error.strerror or error}")
            raise failure or error from error


def explain(address: str, host: str, security: Security, error: Exception) -> LoginFailed | None:
    """What keeps a client out, if it is TLS or the login."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return LoginFailed(f"{address}: {_of_certificate(error, host)}")
    if isinstance(error, RequestRefused):
        return _of_login(address, security, error)
    if isinstance(error, ssl.SSLError) and (alert := (error.reason or "").partition("_ALERT_")[2]):
        return LoginFailed(f"{address}: {_of_alert(alert)}")
    if not isinstance(error, ssl.SSLError | ConnectionClosed | ConnectionResetError | BrokenPipeError):
        return None
    has_tls = security.tls is not None
    listener = find_out(address, tls_first=has_tls and not isinstance(error, ssl.SSLError))
    if listener is None:
        return None
    asked = ("SASL_" if security.mechanism else "") + ("SSL" if security.tls else "PLAINTEXT")
    if listener.protocol == asked:
        return None
    logins = f", by {' or '.join(listener.mechanisms)}" if listener.mechanisms else ""
    return LoginFailed(
        f"{address}: the listener speaks {listener.protocol}{logins}, and security.protocol of the client is {asked}"
    )


def _of_certificate(error: ssl.SSLCertVerificationError, host: str) -> str:
    if error.verify_code in _OTHER_HOST:
        return f"the broker's certificate is for other host names than {host}"
    if error.verify_code in _EXPIRED:
        return "the broker's certificate has expired"
    if error.verify_code in _NOT_YET:
        return "the broker's certificate is not valid yet, or this machine's clock is behind"
    return (
        f"the broker's certificate is of a CA that is not trusted here ({error.verify_message}): "
        "ssl.truststore.location or ssl.ca.location has to name its CA"
    )


def _of_alert(alert: str) -> str:
    """What the broker says of the client's own certificate, or of TLS itself."""
    if alert == "CERTIFICATE_REQUIRED":
        return "the broker asks for a certificate of the client (ssl.client.auth=required)"
    words = alert.replace("_", " ").lower()
    if "CERTIFICATE" in alert or "CA" in alert.split("_"):
        return f"the broker does not accept the client's certificate: {words}"
    return f"the broker refuses the TLS handshake: {words}"


def _of_login(address: str, security: Security, error: RequestRefused) -> LoginFailed | None:
    if error.code is ErrorCode.sasl_authentication_failed:
        return LoginFailed(
            f"{address}: the broker does not let user {security.username} in by {security.mechanism}: "
            "the password is wrong, or there is no such user"
        )
    if error.code is ErrorCode.unsupported_sasl_mechanism:
        listener = find_out(address, tls_first=security.tls is not None)
        enabled = f": it takes {' and '.join(listener.mechanisms)}" if listener and listener.mechanisms else ""
        return LoginFailed(f"{address}: {security.mechanism} is not enabled on this listener{enabled}")
    if error.code is ErrorCode.illegal_sasl_state:
        return LoginFailed(f"{address}: the listener asks for no login: security.protocol is without SASL_ there")
    return None


def find_out(address: str, *, tls_first: bool) -> ListenerProtocol | None:
    """What the listener speaks; None if that cannot be found out. A certificate is not looked at: nothing is told.

    What the listener probably speaks is tried first: the broker logs the other attempt.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    with_tls, without = Security(tls=context), Security()
    for security in (with_tls, without) if tls_first else (without, with_tls):
        try:
            plain, host, _ = connect(address, PROBE_SECONDS)
            with plain:
                connection = BrokerConnection(plain, host, security, Deadline(PROBE_SECONDS))
                try:
                    return ListenerProtocol(security.tls is not None, connection.mechanisms(Deadline(PROBE_SECONDS)))
                finally:
                    connection.close()
        except (OSError, RequestRefused, BrokerUnreachable):
            continue
    return None
