"""Delegation tokens over real sockets: who may have one made, who may log in with it, and for how long."""

from __future__ import annotations

import base64
import json
import struct
import threading
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from barnabas.machines.security.scram import BY_TITLE, ScramClient
from barnabas.metadata.delegation_tokens import DelegationTokenNode
from tests.support.sasl import LoginBroker, authenticate, is_served, log_in, login_broker, shake_hands
from tests.support.waiting import wait_until
from tests.support.wire import Connection, read_response, request

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.slow

CREATE, RENEW, EXPIRE, DESCRIBE, CREATE_ACLS = 38, 39, 40, 41, 30
USER_RESOURCE, LITERAL, CREATE_TOKENS, DESCRIBE_TOKENS, ALLOW = 7, 3, 13, 14, 3
ALICE = {"principal_type": "User", "principal_name": "alice"}
SETTINGS = {
    "delegation.token.secret.key": "the key",
    "delegation.token.max.per.owner": "40",
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS;User:alice",
}
"""Bob may do what rules allow: without an authorizer everybody may see all tokens, as in Kafka."""
DESCRIBE_USERS, ALTER_USERS = 50, 51
DISABLED, NOT_FOUND, MISMATCH, NOT_ALLOWED, NOT_AUTHORIZED, EXPIRED, BAD_TYPE = range(61, 68)
FAILED, POLICY = 58, 44
DAY_MS = 86_400_000


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LoginBroker]:
    with login_broker(tmp_path_factory.mktemp("tokens"), SETTINGS) as broker:
        yield broker


@pytest.fixture
def alice(broker: LoginBroker) -> Iterator[Connection]:
    with Connection(broker.login_address, 30) as connection:
        log_in(connection, "PLAIN", "alice", "wonder")
        yield connection


@pytest.fixture
def bob(broker: LoginBroker) -> Iterator[Connection]:
    with Connection(broker.login_address, 30) as connection:
        log_in(connection, "PLAIN", "bob", "builder")
        yield connection


def create(client: Connection, **values: Any) -> Any:
    return client.ask(CREATE, 3, {"max_lifetime": -1, **values})


def tokens_of(client: Connection) -> list[Any]:
    """Those that a client is told of."""
    return list(client.ask(DESCRIBE, 3, {"owners": None}).tokens)


def log_in_by(broker: LoginBroker, token: Any, mechanism: str = "SCRAM-SHA-256", hmac: bytes | None = None) -> Any:
    """Log in with a token; gives the connection and the last answer."""
    connection = Connection(broker.login_address, 30)
    shake_hands(connection, mechanism)
    password = base64.b64encode(token.hmac if hmac is None else hmac).decode()
    client = ScramClient(BY_TITLE[mechanism], token.token_id, password, "nonce")
    client._bare += ",tokenauth=true"
    challenge = authenticate(connection, client.opening)
    return connection, authenticate(connection, client.prove(challenge.auth_bytes))


@pytest.mark.parametrize("mechanism", list(BY_TITLE))
def test_whoever_has_a_token_is_its_owner_until_it_expires(
    broker: LoginBroker, alice: Connection, mechanism: str
) -> None:
    token = create(alice)
    assert (token.error_code.value, token.principal_name) == (0, "alice")
    connection, last = log_in_by(broker, token, mechanism)
    with connection:
        assert last.error_code.value == 0
        assert 0 < last.session_lifetime.total_seconds() * 1000 <= DAY_MS
        assert is_served(connection)
        assert create(connection).error_code.value == NOT_ALLOWED


def test_an_owner_has_so_many_tokens_and_no_more(bob: Connection, alice: Connection) -> None:
    """Every user may make tokens: a hundred thousand of them held each request about tokens up for seconds."""
    assert not tokens_of(bob)
    made = [create(bob) for _ in range(41)]
    assert [each.error_code.value for each in made] == [*[0] * 40, POLICY]
    assert bob.ask(EXPIRE, 2, {"hmac": made[0].hmac, "expiry_time_period": -1}).error_code.value == 0
    assert create(bob).error_code.value == 0
    assert create(bob).error_code.value == POLICY
    assert create(alice).error_code.value == 0, "those of others do not count"
    for token in tokens_of(bob):
        assert bob.ask(EXPIRE, 2, {"hmac": token.hmac, "expiry_time_period": -1}).error_code.value == 0


def test_a_token_has_a_size(alice: Connection) -> None:
    renewers = [{"principal_type": "User", "principal_name": f"{number:0100}"} for number in range(40)]
    assert create(alice, renewers=renewers).error_code.value == POLICY
    assert create(alice, renewers=renewers[:30]).error_code.value == 0
    few = [{"principal_type": "User", "principal_name": f"{number}"} for number in range(101)]
    assert create(alice, renewers=few).error_code.value == POLICY
    assert create(alice, renewers=few[:100] * 2).error_code.value == 0


def test_a_description_is_made_in_parts_by_its_renewers(
    broker: LoginBroker, alice: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three hundred tokens of thousands of renewers held all clients up for more than a second."""
    renewers = [{"principal_type": "User", "principal_name": f"{number}"} for number in range(100)]
    token = create(alice, renewers=renewers)
    answers = broker.app.broker.long_answers
    weights: dict[str, int] = {}
    each = answers.each

    async def weighed(items: Any, do: Any, weigh: Any = None) -> Any:
        items = list(items)
        weights.update({item.token_id: 1 if weigh is None else 1 + weigh(item) for item in items})
        return await each(items, do, weigh)

    monkeypatch.setattr(answers, "each", weighed)
    assert token.token_id in {one.token_id for one in tokens_of(alice)}
    assert weights[token.token_id] == 101


def test_a_token_is_read_in_a_thread_and_once(
    broker: LoginBroker, alice: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    create(alice)
    alice.ask(DESCRIBE, 3, {"owners": None})
    readers: list[tuple[str, int]] = []
    decode = DelegationTokenNode.decode

    def noted(path: str, data: bytes) -> Any:
        readers.append((path, threading.get_ident()))
        return decode(path, data)

    monkeypatch.setattr(DelegationTokenNode, "decode", noted)
    new = create(alice)
    for _ in range(3):
        tokens = alice.ask(DESCRIBE, 3, {"owners": None}).tokens
    assert new.token_id in {token.token_id for token in tokens}
    assert [path for path, _ in readers] == [DelegationTokenNode.path(new.token_id)]
    assert broker.call(threading.get_ident) not in {thread for _, thread in readers}


def test_another_password_or_another_token_does_not_get_in(broker: LoginBroker, alice: Connection) -> None:
    token, other = create(alice), create(alice)
    connection, last = log_in_by(broker, token, hmac=other.hmac)
    connection.socket.close()
    assert last.error_code.value == FAILED


def test_a_tokens_password_is_nowhere_in_the_tree(broker: LoginBroker, alice: Connection) -> None:
    token = create(alice, renewers=[{"principal_type": "User", "principal_name": "bob, the b"}])
    store = broker.app.broker.membership.store
    node = broker.wait_for(store.get(DelegationTokenNode.path(token.token_id)))
    assert json.loads(node.data) == {
        "version": 3,
        "owner": "User%3Aalice",
        "tokenRequester": "User%3Aalice",
        "renewers": ["User%3Abob%2C%20the%20b"],
        "issueTimestamp": round(token.issue_timestamp.timestamp() * 1000),
        "maxTimestamp": round(token.max_timestamp.timestamp() * 1000),
        "expiryTimestamp": round(token.expiry_timestamp.timestamp() * 1000),
        "tokenId": token.token_id,
    }


def test_a_token_goes_at_once_when_its_owner_says_so(broker: LoginBroker, alice: Connection) -> None:
    token = create(alice)
    assert alice.ask(EXPIRE, 2, {"hmac": token.hmac, "expiry_time_period": -1}).error_code.value == 0
    connection, last = log_in_by(broker, token)
    connection.socket.close()
    assert last.error_code.value == FAILED
    assert alice.ask(RENEW, 2, {"hmac": token.hmac, "renew_period": -1}).error_code.value == NOT_FOUND


def test_owner_and_renewers_renew_a_token_up_to_its_end(alice: Connection, bob: Connection) -> None:
    token = create(alice, renewers=[{"principal_type": "User", "principal_name": "bob"}], max_lifetime=2 * DAY_MS)
    for client in (alice, bob):
        renewed = client.ask(RENEW, 2, {"hmac": token.hmac, "renew_period": 9 * DAY_MS})
        assert (renewed.error_code.value, renewed.expiry_timestamp) == (0, token.max_timestamp)
    assert alice.ask(EXPIRE, 2, {"hmac": token.hmac, "expiry_time_period": 0}).error_code.value == 0


def test_a_token_that_expired_is_neither_renewed_nor_accepted_and_is_removed(
    broker: LoginBroker, alice: Connection
) -> None:
    token = create(alice, max_lifetime=1)
    wait_until(lambda: datetime.now(UTC) > token.max_timestamp + timedelta(milliseconds=1), "the token's end")
    connection, last = log_in_by(broker, token)
    connection.socket.close()
    assert last.error_code.value == FAILED
    assert alice.ask(RENEW, 2, {"hmac": token.hmac, "renew_period": -1}).error_code.value == EXPIRED
    tokens = broker.app.broker.tokens
    assert tokens is not None
    broker.wait_for(tokens.remove_expired())
    assert alice.ask(RENEW, 2, {"hmac": token.hmac, "renew_period": -1}).error_code.value == NOT_FOUND


def ask_for_ever(client: Connection, key: int, version: int, values: dict[str, Any]) -> Any:
    """Ask with the largest number of milliseconds, which kio does not write: in the place of one that it does."""
    other = 0x0102030405060708
    written = {name: other // 1000 if value == "for ever" else value for name, value in values.items()}
    frame = request(key, version, 1, written).replace(struct.pack(">q", other // 1000), struct.pack(">q", 2**63 - 1))
    client.send_frame(frame)
    answer = client.receive_frame()
    assert answer is not None, "the connection was closed"
    return read_response(key, version, answer, 1)


def test_the_largest_number_stands_for_as_long_as_the_broker_allows(alice: Connection) -> None:
    token = ask_for_ever(alice, CREATE, 3, {"max_lifetime": "for ever"})
    assert (token.error_code.value, token.max_timestamp - token.issue_timestamp) == (0, timedelta(days=7))
    renewed = ask_for_ever(alice, RENEW, 2, {"hmac": token.hmac, "renew_period": "for ever"})
    assert (renewed.error_code.value, renewed.expiry_timestamp) == (0, token.max_timestamp)
    expired = ask_for_ever(alice, EXPIRE, 2, {"hmac": token.hmac, "expiry_time_period": "for ever"})
    assert (expired.error_code.value, expired.expiry_timestamp) == (0, token.max_timestamp)


def test_a_broker_that_allows_all_times_gives_one_that_dates_have(tmp_path_factory: pytest.TempPathFactory) -> None:
    keys = {"secret.key": "the key", "max.lifetime.ms": str(2**63 - 1), "expiry.time.ms": str(2**63 - 1)}
    settings = {f"delegation.token.{key}": value for key, value in keys.items()}
    with (
        login_broker(tmp_path_factory.mktemp("for-ever"), settings) as broker,
        Connection(broker.login_address) as alice,
    ):
        log_in(alice, "PLAIN", "alice", "wonder")
        token = create(alice)
        assert (token.error_code.value, token.expiry_timestamp.year) == (0, 9999)
        (described,) = alice.ask(DESCRIBE, 3, {"owners": None}).tokens
        assert described.max_timestamp == described.expiry_timestamp > described.issue_timestamp


def test_nobody_sees_renews_or_expires_tokens_of_others(alice: Connection, bob: Connection) -> None:
    token = create(alice)
    for key, field in ((RENEW, "renew_period"), (EXPIRE, "expiry_time_period")):
        assert bob.ask(key, 2, {"hmac": token.hmac, field: -1}).error_code.value == MISMATCH
    assert token.token_id not in {each.token_id for each in bob.ask(DESCRIBE, 3, {"owners": [ALICE]}).tokens}
    shown = {each.token_id: each for each in alice.ask(DESCRIBE, 3, {"owners": [ALICE]}).tokens}
    assert shown[token.token_id].hmac == token.hmac
    assert token.token_id in {each.token_id for each in alice.ask(DESCRIBE, 3, {"owners": None}).tokens}
    assert alice.ask(DESCRIBE, 3, {"owners": []}).tokens == ()


def test_a_login_by_token_makes_no_password(broker: LoginBroker, alice: Connection) -> None:
    by_token, _ = log_in_by(broker, create(alice))
    salted = {"name": "alice", "mechanism": 1, "iterations": 4096, "salt": b"s", "salted_password": bytes(32)}
    with by_token:
        (result,) = by_token.ask(ALTER_USERS, 0, {"deletions": [], "upsertions": [salted]}).results
        assert (result.user, result.error_code.value) == ("alice", NOT_ALLOWED)
        assert by_token.ask(DESCRIBE_USERS, 0, {"users": None}).error_code.value == NOT_ALLOWED


def test_owner_and_renewers_of_a_token_are_users(alice: Connection) -> None:
    group = [{"principal_type": "Group", "principal_name": "bob"}]
    assert create(alice, renewers=group).error_code.value == BAD_TYPE


def test_a_token_for_another_user_needs_permission_and_is_the_others(broker: LoginBroker, bob: Connection) -> None:
    for_alice = {"owner_principal_type": "User", "owner_principal_name": "alice"}
    assert create(bob, **for_alice).error_code.value == NOT_AUTHORIZED
    allow_bob(broker, CREATE_TOKENS)
    wait_until(lambda: create(bob, **for_alice).error_code.value == 0, "the rule")
    token = create(bob, **for_alice)
    assert (token.principal_name, token.token_requester_principal_name) == ("alice", "bob")
    assert token.token_id in {each.token_id for each in bob.ask(DESCRIBE, 3, {"owners": [ALICE]}).tokens}
    assert bob.ask(RENEW, 2, {"hmac": token.hmac, "renew_period": -1}).error_code.value == MISMATCH
    connection, last = log_in_by(broker, token)
    with connection:
        assert last.error_code.value == 0
        assert connection.ask(DESCRIBE_USERS, 0, {"users": None}).error_code.value == NOT_ALLOWED, "as alice, by token"


def test_tokens_of_another_user_are_described_with_permission(
    broker: LoginBroker, alice: Connection, bob: Connection
) -> None:
    token = create(alice)

    def is_shown() -> bool:
        return token.token_id in {each.token_id for each in bob.ask(DESCRIBE, 3, {"owners": None}).tokens}

    assert not is_shown()
    allow_bob(broker, DESCRIBE_TOKENS)
    wait_until(is_shown, "the rule")


def allow_bob(broker: LoginBroker, operation: int) -> None:
    """Let bob do something about the tokens of alice."""
    creation = {
        "resource_type": USER_RESOURCE,
        "resource_name": "User:alice",
        "resource_pattern_type": LITERAL,
        "principal": "User:bob",
        "host": "*",
        "operation": operation,
        "permission_type": ALLOW,
    }
    with Connection(broker.open_address) as admin:
        (result,) = admin.ask(CREATE_ACLS, 3, {"creations": [creation]}).results
    assert result.error_code.value == 0


def test_without_a_login_there_are_no_tokens(broker: LoginBroker) -> None:
    with Connection(broker.open_address) as client:
        assert create(client).error_code.value == NOT_ALLOWED
        assert client.ask(DESCRIBE, 3, {"owners": None}).error_code.value == NOT_ALLOWED


def test_a_user_is_no_token_and_a_token_no_user(broker: LoginBroker, alice: Connection) -> None:
    token = create(alice)
    with Connection(broker.login_address, 30) as client:
        password = base64.b64encode(token.hmac).decode()
        assert log_in(client, "SCRAM-SHA-256", token.token_id, password).error_code.value == FAILED


def test_without_a_key_tokens_are_off(tmp_path_factory: pytest.TempPathFactory) -> None:
    with login_broker(tmp_path_factory.mktemp("off")) as broker, Connection(broker.login_address, 30) as client:
        log_in(client, "PLAIN", "alice", "wonder")
        assert create(client).error_code.value == DISABLED
