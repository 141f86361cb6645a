"""Attacks that have a number, and others that were thought of: sent over real sockets to a broker with logins and ACLs.

Those numbers that are not here have their tests where the code is: CVE-2018-1288 and CVE-2018-17196 in
`tests/unit/broker/permissions/test_hot`, CVE-2022-34917 in `tests/unit/broker/serving/test_login`, CVE-2024-27309 in
`tests/cluster/test_permissions`, CVE-2025-27817 in `tests/unit/broker/security/test_oauth_tokens`.
"""

from __future__ import annotations

import ast
import base64
import json
import logging
import re
import struct
import threading
import time
import tracemalloc
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from joserfc import jwt
from joserfc.jwk import RSAKey

import barnabas
from barnabas.machines.security.scram import BY_TITLE, ScramClient
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

KEY = RSAKey.generate_key(2048, {"kid": "one"}, private=True)
STRANGER = RSAKey.generate_key(2048, {"kid": "one"}, private=True)
MEMORY = 16_000_000
"""Bytes that a hostile frame may make the broker take: modules that serve its API, and nothing of what it announces."""
CREATE_TOPICS, CREATE_ACLS, DESCRIBE_CONFIGS, INCREMENTAL_ALTER_CONFIGS = 19, 30, 32, 44
CLUSTER, TOPIC, BROKER, LITERAL, PREFIXED, ALLOW, READ, ALTER_CONFIGS = 4, 2, 4, 3, 4, 3, 3, 11
FAILED, NONE = 58, 0
HALF_OPEN = 48


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LoginBroker]:
    folder = tmp_path_factory.mktemp("attacked")
    keys = folder / "keys.json"
    keys.write_text(json.dumps({"keys": [KEY.as_dict(private=False)]}))
    settings = {
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,OAUTHBEARER",
        "sasl.oauthbearer.jwks.endpoint.url": keys.as_uri(),
        "org.apache.kafka.sasl.oauthbearer.allowed.urls": keys.as_uri(),
        "sasl.oauthbearer.expected.issuer": "me",
        "sasl.oauthbearer.expected.audience": "kafka",
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS;User:alice",
        "delegation.token.secret.key": "the key of tokens",
        "password.encoder.secret": "the key of passwords",
        "connections.max.reauth.ms": "60000",
    }
    with login_broker(folder, settings) as running:
        running.add_user("carol", "sings")
        with Connection(running.open_address) as admin:
            for name in ("secret", "*odd"):
                topic = {"name": name, "num_partitions": 1, "replication_factor": 1}
                admin.ask(CREATE_TOPICS, 7, {"topics": [topic], "timeout": 10_000})
        yield running


@pytest.fixture
def stranger(broker: LoginBroker) -> Iterator[Connection]:
    """Somebody who has not logged in."""
    with Connection(broker.login_address, 30) as connection:
        yield connection


@pytest.fixture
def bob(broker: LoginBroker) -> Iterator[Connection]:
    """A user who may do nothing unless he is allowed to."""
    with Connection(broker.login_address, 30) as connection:
        assert log_in(connection, "PLAIN", "bob", "builder").error_code == NONE
        yield connection


def allow(broker: LoginBroker, kind: int, name: str, operation: int, pattern: int = LITERAL) -> None:
    """Let bob do something."""
    rule = {
        "resource_type": kind, "resource_name": name, "resource_pattern_type": pattern, "principal": "User:bob",
        "host": "*", "operation": operation, "permission_type": ALLOW,
    }  # fmt: skip
    with Connection(broker.open_address) as admin:
        assert admin.ask(CREATE_ACLS, 3, {"creations": [rule]}).results[0].error_code == NONE


@pytest.mark.parametrize(
    ("mechanism", "message"),
    [
        ("PLAIN", b"alice\0bob\0builder"),
        ("SCRAM-SHA-256", b"n,a=alice,n=carol,r=abc"),
        ("OAUTHBEARER", b"n,a=alice,\1auth=Bearer %s\1\1"),
    ],
)
def test_cve_2017_12610_nobody_logs_in_in_the_name_of_another(
    stranger: Connection, mechanism: str, message: bytes
) -> None:
    shake_hands(stranger, mechanism)
    answer = authenticate(stranger, message.replace(b"%s", signed("bob").encode()))
    assert answer.error_code == FAILED
    assert stranger.receive_frame() is None


def test_cve_2021_38153_secrets_are_compared_in_constant_time_only() -> None:
    """No comparison by == or != has anything called a secret on either side, but for lengths."""
    words = "password|secret|hmac|proof|signature|stored_key|server_key|client_key|nonce|challenge"
    secret = re.compile(words, re.IGNORECASE)
    harmless = {
        "signature != watch.signature",  # what a folder of the metadata store looked like
        "bool(username) != bool(password)",
        "values.keys() != {'username', 'password'}",
        "_length(password) == int(fields['passwordLength'])",
        "{len(credential.stored_key), len(credential.server_key)} != {mechanism.key_bytes}",
    }
    found = []
    for file in Path(barnabas.__file__).parent.rglob("*.py"):
        text = file.read_text(encoding="utf-8")
        if not (("==" in text or "!=" in text) and secret.search(text)):
            continue
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Compare) and any(isinstance(each, ast.Eq | ast.NotEq) for each in node.ops):
                compared = ast.unparse(node)
                if secret.search(compared) and not compared.startswith("len(") and compared not in harmless:
                    found.append(f"{file.name}:{node.lineno}: {compared}")
    assert found == []


def test_cve_2024_56128_the_last_message_of_scram_repeats_the_nonce(stranger: Connection) -> None:
    shake_hands(stranger, "SCRAM-SHA-256")
    client = ScramClient(BY_TITLE["SCRAM-SHA-256"], "carol", "sings", "nonce")
    final = client.prove(authenticate(stranger, client.opening).auth_bytes)
    assert authenticate(stranger, re.sub(rb"r=[^,]*", b"r=nonce", final)).error_code == FAILED


def _part(value: dict[str, Any]) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).rstrip(b"=").decode()


def claims(name: str) -> dict[str, Any]:
    now = int(time.time())
    return {"iss": "me", "aud": "kafka", "sub": name, "iat": now, "exp": now + 60}


def signed(name: str, key: RSAKey = KEY) -> str:
    return jwt.encode({"alg": "RS256", "kid": "one"}, claims(name), key)


@pytest.mark.parametrize(
    "token",
    [
        pytest.param(f"{_part({'alg': 'none'})}.{_part(claims('alice'))}.", id="CVE-2026-33557: unsigned"),
        pytest.param(f"{_part({'alg': 'RS256', 'kid': 'one'})}.{_part(claims('alice'))}.", id="no signature"),
        pytest.param(signed("alice", STRANGER), id="CVE-2026-110985: of a key that is not set"),
    ],
)
def test_a_token_that_no_known_key_has_signed_does_not_get_in(stranger: Connection, token: str) -> None:
    shake_hands(stranger, "OAUTHBEARER")
    answer = authenticate(stranger, b"n,,\1auth=Bearer %s\1\1" % token.encode())
    assert (answer.error_code, answer.auth_bytes) == (NONE, b'{"status":"invalid_token"}')
    assert authenticate(stranger, b"\1").error_code == FAILED


HUGE, COMPACT = struct.pack(">i", 2**31 - 1), b"\xff\xff\xff\xff\x07"
FLEXIBLE = b"\0"
"""The end of a header that may have tagged fields."""


def frame(key: int, version: int, rest: bytes) -> bytes:
    return struct.pack(">hhih", key, version, 1, -1) + rest


@pytest.mark.parametrize(
    "hostile",
    [
        pytest.param(frame(METADATA, 4, HUGE), id="an array"),
        pytest.param(frame(METADATA, 12, FLEXIBLE + COMPACT), id="a compact array"),
        pytest.param(frame(METADATA, 12, COMPACT), id="tagged fields of a header"),
        pytest.param(frame(METADATA, 12, FLEXIBLE + b"\1\0\0" + COMPACT), id="tagged fields of a body"),
        pytest.param(frame(CREATE_TOPICS, 7, FLEXIBLE + COMPACT), id="an array of messages"),
        pytest.param(frame(0, 9, FLEXIBLE + b"\0\0\1\0\0\0\0" + COMPACT), id="topics to produce to"),
        pytest.param(frame(1, 12, FLEXIBLE + bytes(25) + COMPACT), id="topics to fetch"),
    ],
)
def test_cve_2026_111108_no_memory_is_taken_for_elements_that_are_not_there(bob: Connection, hostile: bytes) -> None:
    assert is_served(bob)  # modules are loaded before it is counted
    assert closes_cheaply(bob, hostile)


@pytest.mark.parametrize("begun", [False, True], ids=["at first", "after the handshake"])
@pytest.mark.parametrize(
    "hostile",
    [
        pytest.param(frame(API_VERSIONS, 3, COMPACT), id="tagged fields of a header"),
        pytest.param(frame(API_VERSIONS, 3, FLEXIBLE + b"\2a\2b" + COMPACT), id="tagged fields of a body"),
        pytest.param(frame(API_VERSIONS, 3, FLEXIBLE + COMPACT), id="a name"),
        pytest.param(frame(AUTHENTICATE, 2, COMPACT), id="tagged fields of a login's header"),
        pytest.param(frame(AUTHENTICATE, 2, FLEXIBLE + b"\2x" + COMPACT), id="tagged fields of a login"),
        pytest.param(frame(AUTHENTICATE, 2, FLEXIBLE + COMPACT), id="bytes of a login"),
        pytest.param(frame(HANDSHAKE, 1, b"\x7f\xff"), id="a mechanism's name"),
    ],
)
def test_cve_2026_111115_before_the_login_neither(stranger: Connection, hostile: bytes, begun: bool) -> None:
    if begun:
        shake_hands(stranger, "SCRAM-SHA-256")
    assert closes_cheaply(stranger, hostile)


def closes_cheaply(connection: Connection, hostile: bytes) -> bool:
    """Whether the broker, which is in this process, ends the connection at a frame without taking memory for it."""
    tracemalloc.start()
    try:
        connection.send_frame(hostile)
        answer = connection.receive_frame()
        assert tracemalloc.get_traced_memory()[1] < MEMORY
    finally:
        tracemalloc.stop()
    return answer is None


@pytest.mark.parametrize("password", ["builder", "wrong"])
def test_a_request_that_comes_together_with_a_login_is_served_only_after_it(broker: LoginBroker, password: str) -> None:
    wanted = {"name": f"early-{password}", "num_partitions": 1, "replication_factor": 1}
    frames = [
        request(HANDSHAKE, 1, 1, {"mechanism": "PLAIN"}),
        request(AUTHENTICATE, 2, 2, {"auth_bytes": f"\0bob\0{password}".encode()}),
        request(CREATE_TOPICS, 7, 3, {"topics": [wanted], "timeout": 1000}),
    ]
    with Connection(broker.login_address, 30) as client:
        client.socket.sendall(b"".join(struct.pack(">i", len(each)) + each for each in frames))
        answers = [client.receive_frame() for _ in frames]
    assert (answers[2] is not None) == (password == "builder")
    assert f"early-{password}" not in broker.app.broker.metadata.image.topics


def half_open(kind: str, number: int) -> bytes:
    """What somebody sends who begins to log in, and then sends nothing more."""
    token = f"{_part({'alg': 'RS256', 'kid': f'made up {number}'})}.e30.AAAA"
    sent = {
        "nothing": b"",
        "the length of a frame": HALF_A_MEGABYTE,
        "a part of a frame": HALF_A_MEGABYTE + frame(HANDSHAKE, 1, bytes(60_000)),
        "a handshake": _framed(request(HANDSHAKE, 1, 1, {"mechanism": "SCRAM-SHA-256"})),
    }
    sent["a first message"] = sent["a handshake"] + _framed(
        request(AUTHENTICATE, 2, 2, {"auth_bytes": f"n,,n=user{number},r=abc".encode()})
    )
    sent["a token"] = _framed(request(HANDSHAKE, 1, 1, {"mechanism": "OAUTHBEARER"})) + _framed(
        request(AUTHENTICATE, 2, 2, {"auth_bytes": b"n,,\1auth=Bearer %s\1\1" % token.encode()})
    )
    return sent[kind]


HALF_A_MEGABYTE = struct.pack(">i", 500_000)


def _framed(body: bytes) -> bytes:
    return struct.pack(">i", len(body)) + body


@pytest.mark.parametrize(
    "kind",
    ["nothing", "the length of a frame", "a part of a frame", "a handshake", "a first message", "a token"],
)
def test_half_open_logins_hold_nobody_up_and_leave_nothing_behind(
    broker: LoginBroker, bob: Connection, kind: str
) -> None:
    server, threads = broker.server, threading.active_count()
    before = broker.call(lambda: len(server.connections))
    with ExitStack() as stack:
        strangers = [stack.enter_context(Connection(broker.login_address, 30)) for _ in range(HALF_OPEN)]
        for number, each in enumerate(strangers):
            each.socket.sendall(half_open(kind, number))
        wait_until(lambda: broker.call(lambda: len(server.connections)) >= before + HALF_OPEN, "all of them")
        assert all(is_served(bob) for _ in range(20))
        assert threading.active_count() <= threads + 10
        assert broker.call(lambda: server.login_budget.used <= server.login_budget.limit and not server.budget.used)
    wait_until(lambda: broker.call(lambda: len(server.connections)) == before, "all of them to be gone")
    assert broker.call(lambda: server.login_budget.used) == 0


def test_a_prefix_that_looks_like_the_wildcard_is_none(broker: LoginBroker, bob: Connection) -> None:
    allow(broker, TOPIC, "*", READ, PREFIXED)
    assert bob.ask(METADATA, 9, {"topics": None}).topics == ()


def test_who_may_change_the_brokers_settings_gets_no_other_rights_by_them(broker: LoginBroker, bob: Connection) -> None:
    allow(broker, CLUSTER, "kafka-cluster", ALTER_CONFIGS)
    for name in (
        "super.users",
        "allow.everyone.if.no.acl.found",
        "authorizer.class.name",
        "listener.security.protocol.map",
        "delegation.token.secret.key",
        "org.apache.kafka.sasl.oauthbearer.allowed.urls",
        "sasl.oauthbearer.unsigned.tokens.enable",
        "listener.name.login.oauthbearer.sasl.oauthbearer.unsigned.tokens.enable",
        "listener.name.login.sasl.oauthbearer.expected.issuer",
    ):
        for resource in ("1", ""):
            change = [{"name": name, "config_operation": 0, "value": "true"}]
            body = {"resources": [{"resource_type": BROKER, "resource_name": resource, "configs": change}]}
            (answer,) = bob.ask(INCREMENTAL_ALTER_CONFIGS, 1, body).responses
            assert "Cannot update these configs dynamically" in (answer.error_message or ""), name


def test_no_secret_is_told_or_logged(broker: LoginBroker, bob: Connection, caplog: pytest.LogCaptureFixture) -> None:
    """Not in DescribeConfigs, nor in the log at its most talkative, nor in what is said of a value that is wrong."""
    caplog.set_level(logging.DEBUG)
    allow(broker, CLUSTER, "kafka-cluster", ALTER_CONFIGS)
    name, told = "listener.name.login.plain.sasl.jaas.config", []
    for text in ('x required user_zoe="hunter2";', f'{PLAIN_MODULE} sometimes user_zoe="hunter2";', '"hunter2'):
        change = [{"name": name, "config_operation": 0, "value": text}]
        body = {"resources": [{"resource_type": BROKER, "resource_name": "1", "configs": change}]}
        (answer,) = bob.ask(INCREMENTAL_ALTER_CONFIGS, 1, body).responses
        assert answer.error_code != NONE
        told.append(answer.error_message)
    asked = [{"resource_type": BROKER, "resource_name": "1", "configuration_keys": None}]
    bob.send_frame(request(DESCRIBE_CONFIGS, 4, 1, {"resources": asked, "include_synonyms": True}))
    told.append((bob.receive_frame() or b"").decode("latin-1"))
    for mechanism, user, password in (("PLAIN", "alice", "wonder"), ("SCRAM-SHA-256", "carol", "sings")):
        for tried in (password, f"no-{password}"):
            with Connection(broker.login_address, 30) as client:
                log_in(client, mechanism, user, tried)
    token = signed("dora")
    with Connection(broker.login_address, 30) as client:
        shake_hands(client, "OAUTHBEARER")
        assert authenticate(client, b"n,,\1auth=Bearer %s\1\1" % token.encode()).auth_bytes == b""
    told.append(caplog.text)
    for secret in ("hunter2", "wonder", "sings", "the key of", token.rpartition(".")[2], 'user_alice="'):
        assert not [text for text in told if secret in text], secret
    assert "logged in as User:dora" in caplog.text
