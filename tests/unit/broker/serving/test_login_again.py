"""Sessions with an end, and logging in again on the same connection (KIP-368)."""

from __future__ import annotations

import struct
import time
from typing import TYPE_CHECKING, Any

import pytest

from barnabas.net.connection import REQUESTS_PER_TURN
from tests.support.sasl import (
    AUTHENTICATE,
    HANDSHAKE,
    METADATA,
    LoginBroker,
    authenticate,
    is_served,
    log_in,
    login_broker,
    shake_hands,
)
from tests.support.waiting import wait_until
from tests.support.wire import Connection, read_response, request

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.slow

FAILED, ILLEGAL_STATE = 58, 34
LIFETIME_MS = 2500


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LoginBroker]:
    settings = {"listener.name.login.plain.connections.max.reauth.ms": str(LIFETIME_MS)}
    with login_broker(tmp_path_factory.mktemp("again"), settings) as broker:
        broker.add_user("alice", "wonder")
        yield broker


@pytest.fixture
def client(broker: LoginBroker) -> Iterator[Connection]:
    with Connection(broker.login_address, 30) as connection:
        yield connection


def test_a_client_is_told_and_may_log_in_again(client: Connection) -> None:
    last = log_in(client, "PLAIN", "alice", "wonder")
    assert last.session_lifetime.total_seconds() * 1000 == LIFETIME_MS
    assert log_in(client, "PLAIN", "alice", "wonder").error_code.value == 0
    assert is_served(client)
    assert shake_hands(client, "PLAIN").error_code.value == ILLEGAL_STATE  # within a second


def test_nothing_is_served_after_the_end_but_a_login(broker: LoginBroker) -> None:
    with Connection(broker.login_address) as late, Connection(broker.login_address) as again:
        for client in (late, again):
            log_in(client, "PLAIN", "alice", "wonder")
        ended = time.monotonic() + LIFETIME_MS / 1000
        wait_until(lambda: time.monotonic() > ended, "the session to end")
        late.send_frame(request(3, 9, 5, {"topics": []}))
        assert late.receive_frame() is None
        assert log_in(again, "PLAIN", "alice", "wonder").error_code.value == 0
        assert is_served(again)


def test_no_form_of_the_login_lasts_for_longer(broker: LoginBroker) -> None:
    with Connection(broker.login_address) as old, Connection(broker.login_address) as oldest:
        assert log_in(old, "PLAIN", "alice", "wonder", version=0).error_code.value == 0
        assert shake_hands(oldest, "PLAIN", version=0).error_code.value == 0
        oldest.send_frame(b"\0alice\0wonder")
        assert oldest.receive_frame() == b""
        ended = time.monotonic() + LIFETIME_MS / 1000
        for client in (old, oldest):
            assert is_served(client)
        wait_until(lambda: time.monotonic() > ended, "the session to end")
        for client in (old, oldest):
            client.send_frame(request(3, 9, 5, {"topics": []}))
            assert client.receive_frame() is None


@pytest.mark.parametrize("version", [0, 1])
def test_after_a_login_without_headers_any_form_of_the_login_may_come(client: Connection, version: int) -> None:
    for form in (0, version):
        assert shake_hands(client, "PLAIN", version=form).error_code.value == 0
        if form:
            assert authenticate(client, b"\0alice\0wonder").error_code.value == 0
        else:
            client.send_frame(b"\0alice\0wonder")
            assert client.receive_frame() == b""
        assert is_served(client)


def test_a_login_that_was_begun_again_has_a_time_to_end(tmp_path: Path) -> None:
    settings = {"connections.max.reauth.ms": "3600000", "connection.authentication.timeout.ms": "1000"}
    with login_broker(tmp_path, settings) as broker, Connection(broker.login_address, 30) as slow:
        log_in(slow, "PLAIN", "alice", "wonder")
        assert shake_hands(slow, "PLAIN").error_code.value == 0
        assert slow.receive_frame() is None


def test_the_messages_of_another_login_may_come_at_once(client: Connection) -> None:
    log_in(client, "PLAIN", "alice", "wonder")
    frames = (
        request(HANDSHAKE, 1, 7, {"mechanism": "PLAIN"}),
        request(AUTHENTICATE, 2, 8, {"auth_bytes": b"\0alice\0wonder"}),
    )
    client.socket.sendall(b"".join(struct.pack(">i", len(each)) + each for each in frames))
    assert client.receive_frame() is not None
    last = client.receive_frame()
    assert last is not None
    assert read_response(AUTHENTICATE, 2, last, 8).error_code.value == 0


def test_requests_before_and_after_another_login_may_come_with_it(client: Connection) -> None:
    """They wait in one buffer, because a message of the login waits for its turn, and are served in several turns."""
    log_in(client, "PLAIN", "alice", "wonder")
    metadata: tuple[int, int, dict[str, Any]] = (METADATA, 9, {"topics": []})
    wanted = [
        metadata,
        (HANDSHAKE, 1, {"mechanism": "PLAIN"}),
        (AUTHENTICATE, 2, {"auth_bytes": b"\0alice\0wonder"}),
        *[metadata] * (REQUESTS_PER_TURN + 1),
    ]
    frames = [request(key, version, number, body) for number, (key, version, body) in enumerate(wanted)]
    client.socket.sendall(b"".join(struct.pack(">i", len(each)) + each for each in frames))
    for number, (key, version, _) in enumerate(wanted):
        answer = client.receive_frame()
        assert answer is not None, number
        read_response(key, version, answer, number)
    assert is_served(client)


def test_nobody_becomes_somebody_else(client: Connection) -> None:
    log_in(client, "PLAIN", "alice", "wonder")
    last = log_in(client, "PLAIN", "bob", "builder")
    assert last.error_code.value == FAILED
    assert last.error_message == "Cannot change principals during re-authentication from User:alice to User:bob"
    assert client.receive_frame() is None


def test_a_wrong_password_ends_the_session(client: Connection) -> None:
    log_in(client, "PLAIN", "alice", "wonder")
    assert log_in(client, "PLAIN", "alice", "wrong").error_code.value == FAILED
    assert client.receive_frame() is None


def test_the_mechanism_stays(client: Connection) -> None:
    log_in(client, "PLAIN", "alice", "wonder")
    assert shake_hands(client, "SCRAM-SHA-256").error_code.value == 0
    last = authenticate(client, b"n,,n=alice,r=abc")
    assert last.error_code.value == FAILED
    assert "not supported for re-authentication of mechanism 'PLAIN'" in last.error_message
    assert client.receive_frame() is None


def test_no_request_passes_in_the_middle_of_a_login(client: Connection) -> None:
    log_in(client, "PLAIN", "alice", "wonder")
    shake_hands(client, "PLAIN")
    client.send_frame(request(3, 9, 5, {"topics": []}))
    assert client.receive_frame() is None
