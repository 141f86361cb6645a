"""PLAIN: who gets in, and what the others are told."""

from __future__ import annotations

import pytest

from barnabas.machines.security import plain
from barnabas.machines.security.login_step import OTHER_AUTHORIZATION_ID, LoginRefused

USERS = {"alice": "wonder", "empty": ""}


@pytest.mark.parametrize("authzid", ["", "alice"])
def test_a_user_gets_in_with_its_password(authzid: str) -> None:
    step = plain.log_in(f"{authzid}\0alice\0wonder".encode(), USERS)
    assert step.identity is not None and step.identity.principal == "User:alice"
    assert step.message == b""


@pytest.mark.parametrize("message", [b"\0alice\0wrong", b"\0alice\0wonder1", b"\0nobody\0wonder", b"\0Alice\0wonder"])
def test_a_wrong_password_and_an_unknown_user_are_told_the_same(message: bytes) -> None:
    with pytest.raises(LoginRefused) as refused:
        plain.log_in(message, USERS)
    assert refused.value.message == "Authentication failed: Invalid username or password"


def test_nobody_acts_as_somebody_else_cve_2017_12610() -> None:
    with pytest.raises(LoginRefused) as refused:
        plain.log_in(b"admin\0alice\0wonder", USERS)
    assert refused.value.message == OTHER_AUTHORIZATION_ID


@pytest.mark.parametrize(
    "message", [b"", b"\0", b"\0alice", b"\0alice\0", b"\0\0wonder", b"\0empty\0", b"\0alice\0wonder\0", b"\0\xff\0x"]
)
def test_a_message_that_is_none_is_refused(message: bytes) -> None:
    with pytest.raises(LoginRefused):
        plain.log_in(message, USERS)
