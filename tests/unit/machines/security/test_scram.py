"""SCRAM: RFC 7677's example, what a server must refuse, and that nothing tells which users there are."""

from __future__ import annotations

import base64
import contextlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.machines.security.login_step import OTHER_AUTHORIZATION_ID, LoginRefused
from barnabas.machines.security.scram import (
    LONGEST_MESSAGE,
    InvalidCredential,
    ScramClient,
    ScramClientError,
    ScramCredential,
    ScramMechanism,
    ScramServer,
    read_opening,
)

SALT = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
CLIENT_NONCE, SERVER_NONCE = "rOprNGfwEbeRWgbNEkqO", "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
FIRST = b"n,,n=user,r=" + CLIENT_NONCE.encode()
FINAL = b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
KNOWN = {mechanism: ScramCredential.of_password(mechanism, "pencil", SALT, 4096) for mechanism in ScramMechanism}
SHA_256 = ScramMechanism.SHA_256


def server(first: bytes = FIRST, credential: ScramCredential = KNOWN[SHA_256]) -> ScramServer:
    return ScramServer(SHA_256, read_opening(first), credential, SERVER_NONCE)


def test_the_server_says_what_the_example_of_rfc_7677_says() -> None:
    login = server()
    assert login.challenge == (
        b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
    )
    assert login.prove(FINAL) == b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="


def test_the_client_says_what_the_example_of_rfc_7677_says() -> None:
    client = ScramClient(SHA_256, "user", "pencil", CLIENT_NONCE)
    assert client.opening == FIRST
    assert client.prove(server().challenge) == FINAL
    client.check(b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=")


@pytest.mark.parametrize(
    "final",
    [
        pytest.param(FINAL.replace(b"k0,p", b"k1,p"), id="CVE-2024-56128: the nonce is not the one that was sent"),
        pytest.param(FINAL.replace(b"%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0", b""), id="CVE-2024-56128: only its own nonce"),
        pytest.param(FINAL.replace(b"c=biws", b"c=eSws"), id="another channel binding"),
        pytest.param(FINAL[:-4] + b"AAA=", id="a wrong proof"),
        pytest.param(FINAL[:-8] + b"AA==", id="a shorter proof"),
        pytest.param(FINAL.partition(b",p=")[0] + b",p=====", id="no base64"),
        pytest.param(FINAL.partition(b",p=")[0], id="no proof"),
        pytest.param(b"", id="nothing"),
        pytest.param(b"\xff\xfe", id="no UTF-8"),
        pytest.param(FINAL + b",x=y", id="more than a proof"),
    ],
)
def test_a_last_message_that_proves_nothing_is_refused_without_a_word_of_why(final: bytes) -> None:
    with pytest.raises(LoginRefused) as refused:
        server().prove(final)
    assert refused.value.message is None


@pytest.mark.parametrize(
    "first",
    [
        b"",
        b"n,,n=,r=abc",
        b"n,,n=user",
        b"n,,n=us=er,r=abc",
        b"n,,n=us\0er,r=abc",
        b"p=tls-unique,,n=user,r=abc",
        b"n,,m=must,n=user,r=abc",
        b"n,,n=user,r=a\x7fc",
        b"\xff",
    ],
)
def test_a_first_message_that_is_none_is_refused(first: bytes) -> None:
    with pytest.raises(LoginRefused):
        read_opening(first)


def test_a_message_is_short_enough_to_be_read_at_once() -> None:
    longest = b"n,,n=" + b"a" * (LONGEST_MESSAGE - 8) + b",r=x"
    assert len(longest) == LONGEST_MESSAGE + 1
    assert read_opening(longest.replace(b"a", b"", 1)).nonce == "x"
    with pytest.raises(LoginRefused, match="more than 8192 bytes"):
        read_opening(longest)
    login = ScramServer(SHA_256, read_opening(b"n,,n=user,r=abc"), KNOWN[SHA_256], "x")
    with pytest.raises(LoginRefused, match="more than 8192 bytes"):
        login.prove(b"c=biws,r=abcx,p=" + b"A" * LONGEST_MESSAGE)


def test_nobody_acts_as_somebody_else_cve_2017_12610() -> None:
    with pytest.raises(LoginRefused) as refused:
        read_opening(b"n,a=admin,n=user,r=abc")
    assert refused.value.message == OTHER_AUTHORIZATION_ID
    assert read_opening(b"n,a=user,n=user,r=abc").name == "user"


def test_an_authorization_id_is_part_of_what_the_last_message_repeats() -> None:
    login = ScramServer(SHA_256, read_opening(b"n,a=user,n=user,r=abc"), KNOWN[SHA_256], "x")
    with pytest.raises(LoginRefused, match="channel binding"):
        login.prove(b"c=biws,r=abcx,p=AAAA")


def test_a_delegation_token_says_that_it_is_one() -> None:
    assert read_opening(b"n,,n=id,r=abc,tokenauth=true").is_token
    assert not read_opening(b"n,,n=id,r=abc").is_token


@settings(max_examples=30)  # each takes some milliseconds on purpose
@given(
    name=st.text(min_size=1, alphabet=st.characters(exclude_characters="\0", exclude_categories=["Cs"])),
    password=st.text(alphabet=st.characters(exclude_categories=["Cs"])),
    wrong=st.booleans(),
    mechanism=st.sampled_from(ScramMechanism),
)
def test_both_sides_agree_for_every_name_and_password(
    name: str, password: str, wrong: bool, mechanism: ScramMechanism
) -> None:
    credential = ScramCredential.of_password(mechanism, password, b"salt", 4096)
    credential = ScramCredential.decode(credential.encode(), mechanism)
    client = ScramClient(mechanism, name, password + ("x" if wrong else ""), "client")
    opening = read_opening(client.opening)
    assert opening.name == name
    login = ScramServer(mechanism, opening, credential, "server")
    final = client.prove(login.challenge)
    if wrong:
        with pytest.raises(LoginRefused):
            login.prove(final)
    else:
        client.check(login.prove(final))


@given(st.binary(max_size=300), st.sampled_from([FIRST, FINAL, b""]), st.integers(0, 100))
def test_whatever_a_client_sends_it_is_refused_or_understood(junk: bytes, real: bytes, at: int) -> None:
    message = real[:at] + junk + real[at:]
    with contextlib.suppress(LoginRefused):
        read_opening(message)
    if message != FINAL:
        with pytest.raises(LoginRefused):
            server().prove(message)


def test_a_decoy_is_the_same_each_time_looks_like_a_credential_and_opens_nothing() -> None:
    decoy = ScramCredential.decoy(SHA_256, "nobody", b"secret")
    assert decoy == ScramCredential.decoy(SHA_256, "nobody", b"secret")
    assert decoy.salt != ScramCredential.decoy(SHA_256, "somebody", b"secret").salt
    assert decoy.salt != ScramCredential.decoy(SHA_256, "nobody", b"other").salt
    assert decoy.salt.isalnum() and 24 <= len(decoy.salt) <= 26
    client = ScramClient(SHA_256, "nobody", "pencil", "abc")
    login = ScramServer(SHA_256, read_opening(client.opening), decoy, "x")
    with pytest.raises(LoginRefused, match="no such user"):
        login.prove(client.prove(login.challenge))


@pytest.mark.parametrize(
    "challenge",
    [
        b"r=other,s=AAAA,i=4096",
        b"r=mine,s=AAAA,i=4096",
        b"r=mine1,s=AAAA,i=100",
        b"r=mine1,s=AAAA,i=9999999999",
        b"r=mine1,s=A,i=4096",
        b"e=other-error",
        b"\xff",
    ],
)
def test_a_client_does_not_work_for_any_server(challenge: bytes) -> None:
    with pytest.raises(ScramClientError):
        ScramClient(SHA_256, "user", "pencil", "mine").prove(challenge)


def test_a_client_notices_a_server_that_does_not_know_it() -> None:
    client = ScramClient(SHA_256, "user", "pencil", CLIENT_NONCE)
    with pytest.raises(ScramClientError):
        client.check(b"v=")
    client.prove(server().challenge)
    with pytest.raises(ScramClientError):
        client.check(b"v=AAAA")


@pytest.mark.parametrize("text", ["", "salt=a", "salt=,stored_key=,server_key=,iterations=x", KNOWN[SHA_256].encode()])
def test_a_stored_credential_that_cannot_be_used_is_named_and_not_shown(text: str) -> None:
    with pytest.raises(InvalidCredential, match="SCRAM-SHA-512") as error:
        ScramCredential.decode(text, ScramMechanism.SHA_512)
    assert "stored_key" not in str(error.value)


def test_a_credential_does_not_show_itself() -> None:
    assert "salt" not in repr(KNOWN[SHA_256])
