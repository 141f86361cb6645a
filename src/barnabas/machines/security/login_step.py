"""What every SASL mechanism gives the login dialogue: the next message to the client, and in the end who it is.

A mechanism refuses by `LoginRefused`. What its message says goes to the client, so it must not tell a user that is
known from one that is not; the reason goes to the broker's log, and holds no secret either.
"""

from __future__ import annotations

from typing import NamedTuple

from barnabas.model.base_error import BarnabasError

OTHER_AUTHORIZATION_ID = "Authentication failed: Client requested an authorization id that is different from username"


class Identity(NamedTuple):
    """Who a client has proved to be."""

    name: str
    """Without the type: alice, not User:alice."""
    kind: str = "User"
    is_token: bool = False
    """Whether it was proved by a delegation token, whose owner this is."""
    expires_ms: int | None = None
    """When the proof loses its worth, on the clock of timestamps; None if it does not."""

    @property
    def principal(self) -> str:
        """As rules for principals have it."""
        return f"{self.kind}:{self.name}"


class LoginStep(NamedTuple):
    """A mechanism's answer to a message of the client."""

    message: bytes
    identity: Identity | None = None
    """Set when the login is done."""


class LoginRefused(BarnabasError):
    """The login failed. `message` is for the client, None for the words that all failures have in common."""

    def __init__(self, reason: str, message: str | None = None) -> None:
        super().__init__(reason)
        self.message = message
