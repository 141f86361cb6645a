"""The login dialogue over real sockets: who gets in, what others are told, and what hostile clients cost."""

from __future__ import annotations

import asyncio
import gc
import struct
import time
from collections import Counter
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from barnabas.broker.security.login_turns import LoginTurns
from barnabas.broker.serving.known_clients import KnownClient
from barnabas.broker.serving.login import ConnectionLogin
from barnabas.machines.security.scram import BY_TITLE, ScramCredential
from barnabas.net.connection import Connection as ServedConnection
from barnabas.net.reply import Parked
from tests.support.quotas import set_quotas
from tests.support.sasl import (
    API_VERSIONS,
    AUTHENTICATE,
    HANDSHAKE,
    METADATA,
    PLAIN_MODULE,
    LoginBroker,
    authenticate,
    is_served,
    log_in,
    login_broker,
    shake_hands,
)
from tests.support.waiting import wait_until
from tests.support.wire import Connection, request

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.slow

LIMIT = 20_000
SCRAM = ["SCRAM-SHA-256", "SCRAM-SHA-512"]
FAILED, ILLEGAL_STATE, UNSUPPORTED, INVALID_REQUEST = 58, 34, 33, 42


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LoginBroker]:
    settings = {
        "sasl.server.max.receive.size": str(LIMIT),
        "password.encoder.secret": "the secret",
    }
    with login_broker(tmp_path_factory.mktemp("login"), settings) as broker:
        for mechanism in SCRAM:
            broker.add_user("carol", "secret", mechanism)
        yield broker


@pytest.fixture
def client(broker: LoginBroker) -> Iterator[Connection]:
    with Connection(broker.login_address, 30) as connection:
        yield connection


@pytest.mark.parametrize(
    ("mechanism", "name", "password"), [("PLAIN", "alice", "wonder"), *((each, "carol", "secret") for each in SCRAM)]
)
@pytest.mark.parametrize("version", [0, 1, 2])
def test_whoever_knows_the_password_is_served(
    client: Connection, mechanism: str, name: str, password: str, version: int
) -> None:
    assert log_in(client, mechanism, name, password, version).error_code.value == 0
    assert is_served(client)


def principals(broker: LoginBroker) -> set[str]:
    """Of the connections that have sent a request which is no step of a login."""
    server = broker.server
    states = broker.call(lambda: [connection.state for connection in server.connections])
    return {state.caller.principal for state in states if isinstance(state, KnownClient)}


def test_requests_are_made_in_the_name_of_who_logged_in(broker: LoginBroker) -> None:
    with Connection(broker.login_address) as client:
        client.ask(API_VERSIONS, 0, {})
        assert "User:ANONYMOUS" in principals(broker)
        log_in(client, "PLAIN", "bob", "builder")
        assert is_served(client)
        assert "User:bob" in principals(broker)
    wait_until(lambda: "User:bob" not in principals(broker), "the connection to end")


@pytest.mark.parametrize(
    ("mechanism", "name"),
    [("PLAIN", "alice"), ("PLAIN", "nobody"), *((each, name) for each in SCRAM for name in ("carol", "nobody"))],
)
def test_a_wrong_password_and_an_unknown_user_are_told_the_same(client: Connection, mechanism: str, name: str) -> None:
    last = log_in(client, mechanism, name, "wrong")
    assert last.error_code.value == FAILED
    assert last.error_message == (
        "Authentication failed: Invalid username or password"
        if mechanism == "PLAIN"
        else f"Authentication failed during authentication due to invalid credentials with SASL mechanism {mechanism}"
    )
    assert client.receive_frame() is None


@pytest.mark.parametrize("name", ["carol", "nobody"])
def test_the_same_work_is_done_for_a_user_that_is_not_there(
    client: Connection, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[str] = []
    for step in ("decoy", "encode", "decode", "of_salted"):
        real = getattr(ScramCredential, step)
        static = isinstance(ScramCredential.__dict__[step], staticmethod)

        def spy(*args: Any, step: str = step, real: Any = real) -> Any:
            done.append(step)
            return real(*args)

        monkeypatch.setattr(ScramCredential, step, staticmethod(spy) if static else spy)
    shake_hands(client, "SCRAM-SHA-256")
    authenticate(client, f"n,,n={name},r=abc".encode())
    assert done == ["decoy"], "a credential was read when it was stored"


def test_messages_come_without_headers_after_the_first_version_of_the_handshake(client: Connection) -> None:
    shake_hands(client, "PLAIN", version=0)
    client.send_frame(b"\0bob\0builder")
    assert client.receive_frame() == b""
    assert is_served(client)


def test_a_message_without_a_header_may_be_shorter_than_one(client: Connection) -> None:
    shake_hands(client, "PLAIN", version=0)
    client.send_frame(b"\0u\0p")
    assert client.receive_frame() is None


def test_a_mechanism_that_is_not_offered_is_answered_with_those_that_are(client: Connection) -> None:
    answer = shake_hands(client, "GSSAPI")
    assert answer.error_code.value == UNSUPPORTED
    assert answer.mechanisms == ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
    assert client.receive_frame() is None


def test_versions_may_be_asked_for_first_and_once(client: Connection) -> None:
    names = {"client_software_name": "a", "client_software_version": "1"}
    assert client.ask(API_VERSIONS, 3, names).error_code.value == 0
    client.send_frame(request(API_VERSIONS, 3, 9, names))
    assert client.receive_frame() is None


def test_a_version_of_api_versions_that_is_not_served_may_be_followed_by_one_that_is(client: Connection) -> None:
    client.send_frame(struct.pack(">hhih", API_VERSIONS, 99, 1, -1) + b"\0")
    answer = client.receive_frame()
    assert answer is not None and answer[4:6] == b"\0\x23"
    assert client.ask(API_VERSIONS, 0, {}).error_code.value == 0
    assert log_in(client, "PLAIN", "alice", "wonder").error_code.value == 0


@pytest.mark.parametrize("key", [0, 1, 3, 8, 10, 19, 32, 50, 51, 1002, 1003, 9999, -1])
@pytest.mark.parametrize("after_handshake", [False, True])
def test_nothing_else_is_answered_before_the_login(client: Connection, key: int, after_handshake: bool) -> None:
    if after_handshake:
        shake_hands(client, "PLAIN")
    client.send_frame(struct.pack(">hhih", key, 0, 1, -1) + bytes(20))
    assert client.receive_frame() is None


def have_messages_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have each message of a login wait for its turn, as in a crowd."""
    monkeypatch.setattr(LoginTurns, "take", lambda *_: False)
    monkeypatch.setattr(
        LoginTurns, "wait", lambda _, who, serve, size: asyncio.get_running_loop().call_soon(serve).cancel
    )


@pytest.mark.parametrize("waits", [False, True])
def test_what_else_comes_before_the_login_is_logged_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, waits: bool
) -> None:
    if waits:
        have_messages_wait(monkeypatch)
    with login_broker(tmp_path) as broker:
        for key in (0, 1, 3, 9999):
            with Connection(broker.login_address, 30) as client:
                client.send_frame(struct.pack(">hhih", key, 0, 1, -1) + bytes(20))
                assert client.receive_frame() is None
    (line,) = [line for line in caplog.messages if "Closed the connection" in line]
    assert line.endswith("on LOGIN: API key 0 in version 0 came before the client has logged in")


@pytest.mark.parametrize(("key", "version"), [(HANDSHAKE, 2), (HANDSHAKE, -1), (AUTHENTICATE, 0), (AUTHENTICATE, 3)])
def test_no_step_of_the_login_comes_too_early_or_in_another_version(client: Connection, key: int, version: int) -> None:
    client.send_frame(struct.pack(">hhih", key, version, 1, -1) + b"\0\x05PLAIN")
    assert client.receive_frame() is None


@pytest.mark.parametrize("size", [LIMIT + 1, 1 << 30, (1 << 31) - 1, -1, 3])
def test_no_memory_is_reserved_for_a_frame_that_is_none_cve_2022_34917(
    broker: LoginBroker, client: Connection, size: int
) -> None:
    client.socket.sendall(struct.pack(">i", size) + b"12")
    assert client.receive_frame() is None
    server = broker.server
    assert server.login_budget.used == server.budget.used == 0


def test_unfinished_frames_take_memory_of_their_own(broker: LoginBroker, client: Connection) -> None:
    server = broker.server
    client.socket.sendall(struct.pack(">i", LIMIT) + bytes(100))
    wait_until(lambda: server.login_budget.used > 0, "the frame to arrive")
    assert server.budget.used == 0
    assert server.login_budget.used <= 4 * 16 * 1024
    client.socket.close()
    wait_until(lambda: server.login_budget.used == 0, "the memory to be given back")


def test_a_frame_that_came_with_the_last_message_is_served_after_it(client: Connection) -> None:
    shake_hands(client, "PLAIN")
    login = request(AUTHENTICATE, 2, 7, {"auth_bytes": b"\0alice\0wonder"})
    large = request(3, 9, 8, {"topics": [{"name": "x" * 249}] * (LIMIT // 200)})
    assert len(large) > LIMIT
    client.socket.sendall(b"".join(struct.pack(">i", len(each)) + each for each in (login, large)))
    first, second = client.receive_frame(), client.receive_frame()
    assert first is not None and second is not None
    assert (first[:4], second[:4]) == (b"\0\0\0\x07", b"\0\0\0\x08")


@pytest.fixture(scope="module")
def hasty(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LoginBroker]:
    """A broker that waits for a login not as long as a busy machine may take for one of many tests."""
    with login_broker(tmp_path_factory.mktemp("hasty"), {"connection.authentication.timeout.ms": "1500"}) as broker:
        yield broker


def test_a_silent_client_and_a_slow_one_are_let_go(hasty: LoginBroker) -> None:
    begun = time.monotonic()
    with Connection(hasty.login_address, 30) as silent, Connection(hasty.login_address, 30) as slow:
        shake_hands(slow, "SCRAM-SHA-256")
        slow.socket.sendall(b"\0")
        assert silent.receive_frame() is None
        assert slow.receive_frame() is None
    assert 1.0 < time.monotonic() - begun < 20


def test_who_has_logged_in_stays_as_long_as_he_likes(hasty: LoginBroker) -> None:
    with Connection(hasty.login_address, 30) as client:
        log_in(client, "PLAIN", "alice", "wonder")
        client.socket.settimeout(2.0)
        with pytest.raises(TimeoutError):
            client.socket.recv(1)  # nothing comes, and nothing is closed, for longer than a login may take
        client.socket.settimeout(30)
        assert is_served(client)


def test_a_second_login_without_need_is_refused_and_changes_nothing(client: Connection) -> None:
    log_in(client, "PLAIN", "alice", "wonder")
    assert shake_hands(client, "PLAIN").error_code.value == ILLEGAL_STATE
    assert authenticate(client, b"\0bob\0builder").error_code.value == ILLEGAL_STATE
    assert is_served(client)


def test_a_listener_without_sasl_takes_no_login(broker: LoginBroker) -> None:
    with Connection(broker.open_address) as client:
        assert shake_hands(client, "PLAIN").error_code.value == ILLEGAL_STATE
        answer = authenticate(client, b"\0alice\0wonder")
        assert (answer.error_code.value, answer.error_message) == (
            ILLEGAL_STATE,
            "SaslAuthenticate request received after successful authentication",
        )


def test_a_user_that_was_deleted_does_not_get_in(broker: LoginBroker) -> None:
    broker.add_user("dave", "secret")
    with Connection(broker.login_address) as client:
        assert log_in(client, "SCRAM-SHA-256", "dave", "secret").error_code.value == 0
        assert is_served(client)
        with Connection(broker.open_address) as admin:
            deletion = {"deletions": [{"name": "dave", "mechanism": 1}], "upsertions": []}
            assert admin.ask(51, 0, deletion).results[0].error_code.value == 0
            assert admin.ask(51, 0, deletion).results[0].error_code.value == 91
        with Connection(broker.login_address) as again:
            assert log_in(again, "SCRAM-SHA-256", "dave", "secret").error_code.value == FAILED
        assert is_served(client)


def alter_broker(broker: LoginBroker, name: str, text: str | None) -> int:
    """Set a dynamic setting of the broker, or delete it; the error."""
    change = {"name": name, "config_operation": 0 if text else 1, "value": text}
    resource = {"resource_type": 4, "resource_name": "1", "configs": [change]}
    with Connection(broker.open_address) as admin:
        (result,) = admin.ask(44, 1, {"resources": [resource], "validate_only": False}).responses
    return int(result.error_code.value)


def test_what_a_listener_offers_and_for_how_long_change_while_the_broker_runs(broker: LoginBroker) -> None:
    def offered() -> tuple[str, ...]:
        with Connection(broker.login_address) as client:
            return tuple(shake_hands(client, "PLAIN").mechanisms)

    def lifetime() -> timedelta:
        with Connection(broker.login_address) as client:
            found: timedelta = log_in(client, "PLAIN", "bob", "builder").session_lifetime
            return found

    assert offered() == ("PLAIN", *SCRAM) and not lifetime()
    for name, text, is_applied in (
        ("listener.name.login.sasl.enabled.mechanisms", "PLAIN", lambda: offered() == ("PLAIN",)),
        ("listener.name.login.connections.max.reauth.ms", "60000", lambda: lifetime() == timedelta(minutes=1)),
    ):
        assert alter_broker(broker, name, text) == 0
        wait_until(is_applied, name)
        assert alter_broker(broker, name, None) == 0
    wait_until(lambda: len(offered()) == 3 and not lifetime(), "the settings of the start")


@pytest.mark.parametrize("waits", [False, True])
@pytest.mark.parametrize("stage", ["silent", "handshake", "challenge", "refused", "failed", "done"])
def test_a_connection_whose_client_leaves_is_freed_without_the_collector(
    broker: LoginBroker, monkeypatch: pytest.MonkeyPatch, stage: str, waits: bool
) -> None:
    """What has lived long is not looked at by the collector any more, so it must not be left to it."""
    if waits:
        have_messages_wait(monkeypatch)

    def living() -> Counter[type]:
        kinds = ConnectionLogin, ServedConnection, Parked
        return Counter(type(each) for each in gc.get_objects() if isinstance(each, kinds))

    wait_until(lambda: not broker.server.connections, "others to leave")
    gc.collect()
    before = living()
    gc.disable()
    try:
        with Connection(broker.login_address) as client:
            if stage in ("handshake", "challenge"):
                shake_hands(client, SCRAM[0])
            if stage == "challenge":
                authenticate(client, b"n,,n=carol,r=abc")
            if stage in ("refused", "done"):
                log_in(client, SCRAM[0], "carol", "secret" if stage == "done" else "wrong")
            if stage == "failed":
                shake_hands(client, "GSSAPI")
                assert client.receive_frame() is None
            assert stage != "done" or is_served(client)
        wait_until(lambda: living() <= before, "the login to be freed")
    finally:
        gc.enable()


def test_passwords_of_plain_change_while_the_broker_runs(broker: LoginBroker) -> None:
    name = "listener.name.login.plain.sasl.jaas.config"

    def alter(text: str | None) -> int:
        change = {"name": name, "config_operation": 0 if text else 1, "value": text}
        resource = {"resource_type": 4, "resource_name": "1", "configs": [change]}
        with Connection(broker.open_address) as admin:
            (result,) = admin.ask(44, 1, {"resources": [resource], "validate_only": False}).responses
            (described,) = admin.ask(32, 4, {"resources": [{"resource_type": 4, "resource_name": "1"}]}).results
        assert all(config.value is None for config in described.configs if config.name == name)
        return int(result.error_code.value)

    def logs_in(password: str) -> bool:
        with Connection(broker.login_address) as client:
            return bool(log_in(client, "PLAIN", "zoe", password).error_code.value == 0)

    assert alter(f'{PLAIN_MODULE} required user_zoe="new";') == 0
    wait_until(lambda: logs_in("new"), "the new password")
    assert "encryptedPassword:" in broker.app.broker.metadata.broker_config(1)[name]
    for broken in ("garbage", f"{PLAIN_MODULE} required;", 'a.ScramLoginModule required user_zoe="x";'):
        assert alter(broken) == INVALID_REQUEST
    assert logs_in("new")
    assert alter(None) == 0
    wait_until(lambda: not logs_in("new"), "the old passwords")


def test_a_failing_login_waits_and_holds_up_nobody(tmp_path_factory: pytest.TempPathFactory) -> None:
    settings = {"connection.failed.authentication.delay.ms": "1000"}
    with login_broker(tmp_path_factory.mktemp("delay"), settings) as broker:
        begun = time.monotonic()
        clients = [Connection(broker.login_address, 30) for _ in range(50)]
        for client in clients:
            shake_hands(client, "PLAIN")
            client.send_frame(request(AUTHENTICATE, 2, 1, {"auth_bytes": b"\0alice\0wrong"}))
        with Connection(broker.login_address, 30) as good:
            log_in(good, "PLAIN", "alice", "wonder")
            assert is_served(good)
            assert time.monotonic() - begun < 1.0 or clients[0].receive_frame() is not None
        clients.pop().socket.close()
        for client in clients[1:]:
            assert client.receive_frame() is not None
            assert client.receive_frame() is None
            client.socket.close()
        clients[0].socket.close()
        assert 1.0 <= time.monotonic() - begun < 30


def test_what_comes_before_the_login_counts_for_nobodys_quota(broker: LoginBroker) -> None:
    of_all: list[dict[str, str | None]] = [{"user": "ANONYMOUS"}, {"client-id": "modest"}]
    for entity in of_all:
        set_quotas(broker.open_address, entity, request_percentage=1e-6)
    try:
        for _ in range(3):
            with Connection(broker.login_address, 30, client_id="modest") as stranger:
                answer = stranger.ask(API_VERSIONS, 3, {"client_software_name": "x", "client_software_version": "1"})
                assert answer.throttle_time == timedelta()
        assert broker.call(lambda: len(broker.server.muted)) == 0
        with Connection(broker.login_address, 30, client_id="modest") as client:
            log_in(client, "PLAIN", "alice", "wonder")
            told = [client.ask(METADATA, 9, {"topics": []}).throttle_time for _ in range(2)]
        assert told == [timedelta(), timedelta(seconds=1)], "those who have logged in have their quota to themselves"
    finally:
        for entity in of_all:
            set_quotas(broker.open_address, entity, request_percentage=None)


def test_an_unknown_name_is_challenged_like_a_user_whatever_iterations_users_have(broker: LoginBroker) -> None:
    chosen = BY_TITLE["SCRAM-SHA-512"]

    def alter(**change: Any) -> None:
        with Connection(broker.open_address) as admin:
            (result,) = admin.ask(51, 0, {"deletions": [], "upsertions": [], **change}).results
        assert result.error_code.value == 0, result

    def iterations(name: str) -> bytes:
        with Connection(broker.login_address, 30) as stranger:
            shake_hands(stranger, chosen.title)
            challenge: bytes = authenticate(stranger, f"n,,n={name},r=abc".encode()).auth_bytes
        return challenge.rpartition(b"i=")[2]

    users = [f"many-{number}" for number in range(20)]
    for name in users:
        key = chosen.salted_password("p", b"salt", 8192)
        kept = {"name": name, "mechanism": chosen.number, "iterations": 8192, "salt": b"salt", "salted_password": key}
        alter(upsertions=[kept])
    try:
        assert {iterations(name) for name in users} == {b"8192"}
        assert b"8192" in {iterations(f"nobody-{number}") for number in range(20)}
    finally:
        for name in users:
            alter(deletions=[{"name": name, "mechanism": chosen.number}])
    assert {iterations(f"nobody-{number}") for number in range(20)} == {b"4096"}, "carol is left"
