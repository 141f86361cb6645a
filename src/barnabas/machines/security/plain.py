"""PLAIN (RFC 4616): the client sends its user name and password as they are, so its connection should be encrypted.

One message does it: an authorization id, which must be empty or the user's name, the name and the password.
"""

from __future__ import annotations

import hashlib
import hmac
from typing import TYPE_CHECKING, Final

from barnabas.machines.security.login_step import OTHER_AUTHORIZATION_ID, Identity, LoginRefused, LoginStep

if TYPE_CHECKING:
    from collections.abc import Mapping

WRONG: Final = "Authentication failed: Invalid username or password"


def log_in(message: bytes, passwords: Mapping[str, str]) -> LoginStep:
    """Check a client's message against the passwords of all users. Raises LoginRefused."""
    parts = message.split(b"\0", 3)
    if len(parts) != 3:
        raise LoginRefused("the PLAIN message does not have three parts")
    try:
        authorization_id, name, password = (part.decode() for part in parts)
    except UnicodeDecodeError:
        raise LoginRefused("the PLAIN message is not UTF-8") from None
    if not name or not password:
        raise LoginRefused("the PLAIN message has no user name or no password")
    if authorization_id not in ("", name):
        raise LoginRefused("the client asked to act as somebody else", OTHER_AUTHORIZATION_ID)
    expected = passwords.get(name)
    same = hmac.compare_digest(_digest(password), _digest(expected or ""))
    if not same or not expected:
        raise LoginRefused("the password is wrong, or there is no such user", WRONG)
    return LoginStep(b"", Identity(name))


def _digest(password: str) -> bytes:
    """As long for every password: how long the right one is does not show."""
    return hashlib.sha256(password.encode()).digest()
