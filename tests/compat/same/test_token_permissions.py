"""Delegation tokens under random ACLs, asked of Barnabas and of Apache Kafka 4.3.0: the answers are the same.

Everybody logs in by PLAIN. The administrator may do everything; alice is judged by random rules about users, tokens and
the cluster. Tokens of bob are there, one of which alice may renew.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any, Final

import pytest

from tests.support.brokers import Barnabas, KafkaKRaft
from tests.support.sasl import PLAIN_MODULE, log_in
from tests.support.waiting import wait_until
from tests.support.wire import Connection, plain, read_response, request

if TYPE_CHECKING:
    from collections.abc import Iterator

SETS: Final = 12
CREATE, RENEW, EXPIRE, DESCRIBE = 38, 39, 40, 41
VERSIONS: Final = {CREATE: 3, RENEW: 2, EXPIRE: 2, DESCRIBE: 3}
DESCRIBE_ACLS, CREATE_ACLS, DELETE_ACLS = 29, 30, 31
TOKEN, USER, CLUSTER, LITERAL = 6, 7, 4, 3
ALL, DESCRIBE_OPERATION, CREATE_TOKENS, DESCRIBE_TOKENS = 2, 8, 13, 14
DENY, ALLOW = 2, 3
HOUR_MS: Final = 3_600_000
PASSWORDS: Final = {"admin": "of all", "alice": "wonder", "bob": "builder"}
SETTINGS: Final = {
    "listener.security.protocol.map": "PLAINTEXT:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT",
    "inter.broker.listener.name": "PLAINTEXT",
    "sasl.enabled.mechanisms": "PLAIN",
    "sasl.mechanism.inter.broker.protocol": "PLAIN",
    "listener.name.plaintext.plain.sasl.jaas.config": f'{PLAIN_MODULE} required username="admin" password="of all" '
    + " ".join(f'user_{name}="{password}"' for name, password in PASSWORDS.items())
    + ";",
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:admin;User:ANONYMOUS",
    "delegation.token.secret.key": "the key",
}
ALICES: Final = {
    "resource_type_filter": 1,
    "resource_name_filter": None,
    "pattern_type_filter": 1,
    "principal_filter": "User:alice",
    "host_filter": None,
    "operation": 1,
    "permission_type": 1,
}
RULES: Final = [
    *((USER, name, each) for name in ("User:alice", "User:bob", "*") for each in (CREATE_TOKENS, DESCRIBE_TOKENS)),
    *((TOKEN, "*", each) for each in (ALL, DESCRIBE_OPERATION)),
    (CLUSTER, "kafka-cluster", ALL),
]


def principal(name: str) -> dict[str, str]:
    return {"principal_type": "User", "principal_name": name}


class Side:
    """One of the two brokers, as its administrator, alice and bob see it."""

    def __init__(self, bootstrap: str) -> None:
        self._clients = {name: Connection(bootstrap) for name in PASSWORDS}
        for name, connection in self._clients.items():
            assert log_in(connection, "PLAIN", name, PASSWORDS[name]).error_code.value == 0
        self.hmacs = [
            self.ask("bob", CREATE, {**NO_OWNER, "renewers": renewers, "max_lifetime": -1})["hmac"]
            for renewers in ([principal("alice")], [])
        ]
        self.tokens = 2
        self.wait_for_tokens()

    def close(self) -> None:
        for connection in self._clients.values():
            connection.socket.close()

    def ask(self, who: str, key: int, body: dict[str, Any]) -> Any:
        """The answer, or its error: times in errors are -1 with Kafka, which kio cannot read."""
        version = VERSIONS.get(key, 3)
        self._clients[who].send_frame(request(key, version, 0, body))
        answer = self._clients[who].receive_frame()
        assert answer is not None, f"the connection of {who} was closed at API {key}"
        if key in (CREATE, RENEW, EXPIRE) and (error := int.from_bytes(answer[5:7], "big")):
            return error
        return plain(read_response(key, version, answer, 0))

    def wait_for_tokens(self) -> None:
        """Until the broker knows all that its controller has made."""
        wait_until(lambda: len(self.ask("admin", DESCRIBE, {"owners": None})["tokens"]) == self.tokens, "the tokens")

    def judge_by(self, rules: list[dict[str, Any]]) -> None:
        """Have alice judged by these rules and no others."""
        self.ask("admin", DELETE_ACLS, {"filters": [ALICES]})
        wait_until(lambda: self._rules() == 0, "the old rules to go")
        if rules:
            made = self.ask("admin", CREATE_ACLS, {"creations": rules})["results"]
            assert not any(each["error_code"] for each in made), made
            wait_until(lambda: self._rules() == len(rules), "the rules")

    def _rules(self) -> int:
        return sum(len(each["acls"]) for each in self.ask("admin", DESCRIBE_ACLS, ALICES)["resources"])

    def told(self) -> dict[str, Any]:
        """What alice is answered."""
        found: dict[str, Any] = {}
        for name, owner in (("her own", NO_OWNER), ("bob's", OF_BOB)):
            made = self.ask("alice", CREATE, {**owner, "renewers": [], "max_lifetime": HOUR_MS})
            found[f"create {name}"] = made if isinstance(made, int) else (made["principal_name"], made["error_code"])
            self.tokens += not isinstance(made, int)
        self.wait_for_tokens()
        for number, hmac in enumerate((*self.hmacs, b"made up")):
            for word, key, period in (("renew", RENEW, "renew_period"), ("expire", EXPIRE, "expiry_time_period")):
                answer = self.ask("alice", key, {"hmac": hmac, period: HOUR_MS})
                found[f"{word} {number}"] = answer if isinstance(answer, int) else 0
        for owners in (None, [], ["alice"], ["bob"], ["alice", "bob"], ["nobody"]):
            body = {"owners": None if owners is None else list(map(principal, owners))}
            answer = self.ask("alice", DESCRIBE, body)
            parties = ("principal_name", "token_requester_principal_name")
            owned = sorted(tuple(token[each] for each in parties) for token in answer["tokens"])
            found[f"describe {owners}"] = answer["error_code"], owned
        return found


NO_OWNER: Final = {"owner_principal_type": None, "owner_principal_name": None}
OF_BOB: Final = {"owner_principal_type": "User", "owner_principal_name": "bob"}


def random_rules(chance: random.Random) -> list[dict[str, Any]]:
    chosen = chance.sample(RULES, chance.choice((0, 1, 2, 4)))
    return [
        {
            "resource_type": kind,
            "resource_name": name,
            "resource_pattern_type": LITERAL,
            "principal": "User:alice",
            "host": "*",
            "operation": operation,
            "permission_type": chance.choice((ALLOW, ALLOW, DENY)),
        }
        for kind, name, operation in chosen
    ]


@pytest.fixture(scope="module")
def sides(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Side, Side]]:
    """Barnabas and Apache Kafka, both with logins, an authorizer and tokens."""
    with (
        Barnabas(tmp_path_factory.mktemp("tokens"), SETTINGS) as ours,
        KafkaKRaft(tmp_path_factory.mktemp("tokens-kafka"), SETTINGS) as theirs,
    ):
        both = Side(ours.bootstrap), Side(theirs.bootstrap)
        yield both
        for side in both:
            side.close()
        assert ours.alive, ours.tail()


def test_tokens_are_made_renewed_ended_and_shown_as_by_kafka(sides: tuple[Side, Side]) -> None:
    chance, differences, told = random.Random(48), [], set()
    for number in range(SETS):
        rules = [] if number == 0 else random_rules(chance)
        for side in sides:
            side.judge_by(rules)
        ours, theirs = (side.told() for side in sides)
        told |= {(name, str(answer)[:20]) for name, answer in ours.items()}
        differences += [(name, ours[name], theirs[name], rules) for name in ours if ours[name] != theirs[name]]
    assert differences == []
    assert len([name for name, _ in told if name == "create bob's"]) == 2, "it was allowed, and it was not"
