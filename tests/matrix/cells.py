"""What every client tries, and how each must end."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from tests.matrix.broker import MatrixBroker

IN, LOGIN, TLS = "in", "login", "tls"
"""How a cell ends: a record was written and read; the login failed; TLS failed."""
OUT: Final = "out"
"""The client does not come in, and does not say why."""
SCRAM: Final = ("SCRAM-SHA-256", "SCRAM-SHA-512")
PASSWORDS: Final = ("PLAIN", *SCRAM)
MECHANISMS: Final = (*PASSWORDS, "OAUTHBEARER")
SESSIONS: Final = 1.7
"""For how many sessions a client writes that has to log in again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One attempt."""

    name: str
    address: str
    expected: str
    mechanism: str | None = None
    user: str = "alice"
    secret: str = ""
    """The password, or the token."""
    ca: Path | None = None
    """The CA that the client trusts; None without TLS."""
    certificate: Path | None = None
    """The client's own certificate, as `.crt` beside its key as `.key` and both for Java as `.pem`."""
    is_token: bool = False
    """Whether user and secret are the id and the HMAC of a delegation token."""
    seconds: float = 0.0
    """For how long it writes, on one connection."""

    @property
    def protocol(self) -> str:
        """Kafka's name for the manner of the connection."""
        return ("SASL_" if self.mechanism else "") + ("SSL" if self.ca else "PLAINTEXT")


def cells(broker: MatrixBroker) -> list[Cell]:
    """Everything that is tried."""
    return [*_logins(broker), *_delegation_tokens(broker), *_tls(broker), *_certificates(broker)]


def _logins(broker: MatrixBroker) -> Iterable[Cell]:
    for mechanism in MECHANISMS:
        right, wrong = broker.secrets(mechanism)
        for listener, ca in (("LOGIN", None), ("LOGIN_TLS", broker.ca)):
            where, over = broker.address(listener), "TLS" if ca else "plaintext"
            named = f"{mechanism} over {over}"
            yield Cell(name=named, address=where, mechanism=mechanism, secret=right, ca=ca, expected=IN)
            yield Cell(
                name=f"{named}, wrong secret", address=where, mechanism=mechanism, secret=wrong, ca=ca, expected=LOGIN
            )
            if mechanism in PASSWORDS:
                yield Cell(
                    name=f"{named}, removed user",
                    address=where,
                    mechanism=mechanism,
                    user="removed",
                    secret=right,
                    ca=ca,
                    expected=LOGIN,
                )
        yield Cell(
            name=f"{mechanism} over TLS, and again",
            address=broker.address("LOGIN_TLS"),
            mechanism=mechanism,
            secret=right,
            ca=broker.ca,
            expected=IN,
            seconds=SESSIONS * broker.session_seconds,
        )


def _delegation_tokens(broker: MatrixBroker) -> Iterable[Cell]:
    """Of alice, by SCRAM: one that is right, one that she has ended, and a wrong HMAC."""
    right, ended = broker.tokens
    for mechanism in SCRAM:
        for name, token, secret, expected, seconds in (
            ("token", right, right.password, IN, 0.0),
            ("token, and again", right, right.password, IN, SESSIONS * broker.session_seconds),
            ("token, wrong secret", right, ended.password, LOGIN, 0.0),
            ("token that was ended", ended, ended.password, LOGIN, 0.0),
        ):
            yield Cell(
                name=f"{mechanism} over TLS by {name}",
                address=broker.address("LOGIN_TLS"),
                mechanism=mechanism,
                user=token.token_id,
                secret=secret,
                is_token=True,
                ca=broker.ca,
                expected=expected,
                seconds=seconds,
            )


def _tls(broker: MatrixBroker) -> Iterable[Cell]:
    for mechanism in MECHANISMS:
        right, _ = broker.secrets(mechanism)
        for name, listener, ca in (
            ("wrong CA", "LOGIN_TLS", broker.other_ca),
            ("wrong host", "OTHER_HOST", broker.ca),
            ("expired certificate", "EXPIRED", broker.ca),
        ):
            yield Cell(
                name=f"{mechanism}, {name}",
                address=broker.address(listener),
                mechanism=mechanism,
                secret=right,
                ca=ca,
                expected=TLS,
            )


def _certificates(broker: MatrixBroker) -> Iterable[Cell]:
    for name, certificate, expected in (
        ("certificate", broker.client("alice"), IN),
        ("certificate of another CA", broker.client("stranger"), OUT),
        ("certificate that is expired", broker.client("late"), OUT),
        ("no certificate", None, OUT),
    ):
        yield Cell(
            name=f"TLS with {name}",
            address=broker.address("CERTIFICATE"),
            ca=broker.ca,
            certificate=certificate,
            expected=expected,
        )
