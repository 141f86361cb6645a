"""OAUTHBEARER: what a client's message and a token's claims must have."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.machines.security.login_step import LoginRefused
from barnabas.machines.security.oauthbearer import LONGEST_MESSAGE, Expectations, identify, read_message

NOW = 1_700_000_000
EXPECTED = Expectations("https://issuer", frozenset({"kafka"}), "sub", 30)
CLAIMS: dict[str, object] = {"iss": "https://issuer", "aud": "kafka", "sub": "alice", "iat": NOW - 60, "exp": NOW + 60}


def test_a_token_stands_for_its_subject_until_it_ends() -> None:
    identity = identify(CLAIMS, EXPECTED, "", NOW * 1000)
    assert (identity.name, identity.expires_ms) == ("alice", (NOW + 60) * 1000)
    assert identify(CLAIMS | {"aud": ["other", "kafka"]}, EXPECTED, "alice", NOW * 1000).name == "alice"
    assert identify(CLAIMS | {"azp": "app"}, EXPECTED._replace(subject_claim="azp"), "", NOW * 1000).name == "app"


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"iss": "https://other"}, "issuer"),
        ({"iss": None}, "issuer"),
        ({"aud": "other"}, "audience"),
        ({"aud": None}, "audience"),
        ({"aud": [None, 1]}, "audience"),
        ({"exp": NOW - 31}, "over"),
        ({"exp": None}, "ends"),
        ({"exp": True}, "no time"),
        ({"exp": float("nan")}, "no time"),
        ({"iat": None}, "issued"),
        ({"iat": NOW + 31}, "not begun"),
        ({"nbf": NOW + 31}, "not begun"),
        ({"nbf": "tomorrow"}, "no time"),
        ({"sub": None}, "sub"),
        ({"sub": " "}, "sub"),
        ({"sub": ["alice"]}, "sub"),
        ({"sub": "\ud800"}, "sub is no text"),
    ],
)
def test_a_token_that_is_not_what_was_expected_is_refused(changed: dict[str, object], reason: str) -> None:
    with pytest.raises(LoginRefused, match=reason) as refused:
        identify(CLAIMS | changed, EXPECTED, "", NOW * 1000)
    assert refused.value.message is None


def test_clocks_may_differ_a_little() -> None:
    identify(CLAIMS | {"exp": NOW - 29, "iat": NOW + 29}, EXPECTED, "", NOW * 1000)


def test_nobody_acts_as_somebody_else() -> None:
    with pytest.raises(LoginRefused, match="somebody else"):
        identify(CLAIMS, EXPECTED, "admin", NOW * 1000)


def test_a_message_is_short_enough_to_be_read_at_once() -> None:
    token = b"n,,\x01auth=Bearer a.b.c\x01"
    assert read_message(token + b"x=y\x01" * 99 + b"\x01").token == "a.b.c"
    with pytest.raises(LoginRefused, match="cannot be read"):
        read_message(token + b"x=y\x01" * 100 + b"\x01")
    with pytest.raises(LoginRefused, match="too long"):
        read_message(token + b"x=" + b"y" * LONGEST_MESSAGE + b"\x01\x01")


def test_a_message_has_a_token_and_perhaps_more() -> None:
    message = read_message(b"n,a=alice,\x01auth=Bearer a.b-_.c\x01cluster=one\x01\x01")
    assert message == ("a.b-_.c", "alice")
    assert "a.b" not in repr(message)


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"n,,\x01\x01",
        b"n,,\x01auth=Basic abc\x01\x01",
        b"n,,\x01auth=Bearer a b\x01\x01",
        b"n,,\x01other=x\x01\x01",
        b"y,,\x01auth=Bearer a\x01\x01",
        b"n,a=\xff,\x01auth=Bearer a\x01\x01",
        b"n,,\x01auth=Bearer " + b"a" * 70_000 + b"\x01\x01",
        b"\x01",
    ],
)
def test_a_message_that_is_none_is_refused(message: bytes) -> None:
    with pytest.raises(LoginRefused):
        read_message(message)


@given(st.binary(max_size=200))
def test_whatever_comes_is_refused_or_understood(junk: bytes) -> None:
    with contextlib.suppress(LoginRefused):
        read_message(b"n,,\x01" + junk)
