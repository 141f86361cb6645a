"""Brokers log in to each other by Kerberos and by tokens, where an authorizer lets nobody else pass for a broker."""

from __future__ import annotations

import json
import time
from io import BytesIO
from typing import TYPE_CHECKING, Any

import pytest
from joserfc import jwt
from joserfc.jwk import RSAKey
from kio.schema.default_principal_data.v0.data import DefaultPrincipalData
from kio.serial import entity_writer
from kio.static.primitive import i32

from barnabas.model.errors import ErrorCode
from barnabas.protocol.messages import inter_broker
from tests.support.broker_handshake import introduce, secret_of, tell
from tests.support.clusters import Cluster
from tests.support.kdc import REALM, Kdc
from tests.support.quotas import alter, alteration
from tests.support.sasl import PLAIN_MODULE, authenticate, log_in, shake_hands
from tests.support.senders import Sender
from tests.support.waiting import wait_until
from tests.support.wire import Connection, request

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

CREATE_TOPICS, ENVELOPE, DESCRIBE_CLUSTER = 19, 58, 60

MECHANISM = "sasl.mechanism.inter.broker.protocol"
ALLOWED = "org.apache.kafka.sasl.oauthbearer.allowed.urls"
TICKETS = "com.sun.security.auth.module.Krb5LoginModule required useKeyTab=true storeKey=true"
ADMIN: Any = {
    "security.protocol": "SASL_PLAINTEXT",
    "sasl.mechanism": "PLAIN",
    "sasl.username": "admin",
    "sasl.password": "of all",
}


class LoginCluster(Cluster):
    """Two brokers, whose sessions are short; the administrator logs in by PLAIN, and once."""

    login = ADMIN

    def __init__(self, folder: Path, mechanism: str, settings: Mapping[str, str]) -> None:
        own = {
            "listener.security.protocol.map": "PLAINTEXT:SASL_PLAINTEXT",
            "sasl.enabled.mechanisms": f"{mechanism},PLAIN",
            MECHANISM: mechanism,
            "listener.name.plaintext.plain.sasl.jaas.config": f'{PLAIN_MODULE} required user_admin="of all";',
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": "User:kafka;User:admin",
            f"listener.name.plaintext.{mechanism.lower()}.connections.max.reauth.ms": "1500",
        }
        super().__init__(folder, 2, {**own, **settings})

    def connection(self, broker_id: int) -> Connection:
        """A connection to one broker, of the administrator."""
        wire = Connection(self.address(broker_id))
        assert log_in(wire, "PLAIN", "admin", "of all").error_code.value == 0
        return wire

    def replicate(self, sender: Sender, seconds: float) -> None:
        """Have records replicated for longer than a session lasts."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            sender.send(10)
            time.sleep(0.1)
        sender.finish()
        assert sender.errors == []


def test_brokers_log_in_by_kerberos(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Kdc(tmp_path) as kdc:
        for name, value in kdc.env.items():
            monkeypatch.setenv(name, value)
        keytab = kdc.add("kafka/127.0.0.1")
        jaas = f'{TICKETS} keyTab="{keytab}" principal="kafka/127.0.0.1@{REALM}";'
        settings = {"listener.name.plaintext.gssapi.sasl.jaas.config": jaas}
        with LoginCluster(tmp_path, "GSSAPI", settings) as cluster:
            cluster.create("replicated", 1, 2, min_insync_replicas="2")
            sender = Sender(cluster, "replicated", **ADMIN)
            cluster.replicate(sender, 0.5)
            kdc.kill()
            cluster.replicate(sender, 2)  # with the tickets that brokers have


class TokenCluster(LoginCluster):
    """Brokers that log in by a token from a file."""

    def __init__(self, folder: Path) -> None:
        key = RSAKey.generate_key(2048, {"kid": "one"}, private=True)
        claims = {"iss": "me", "aud": "kafka", "sub": "kafka", "iat": int(time.time()), "exp": int(time.time()) + 3600}
        self.token = jwt.encode({"alg": "RS256", "kid": "one"}, claims, key)
        keys, token = folder / "keys.json", folder / "token"
        keys.write_text(json.dumps({"keys": [key.as_dict(private=False)]}))
        token.write_text(self.token)
        settings = {
            "sasl.oauthbearer.jwks.endpoint.url": keys.as_uri(),
            ALLOWED: f"{keys.as_uri()},{token.as_uri()}",
            "sasl.oauthbearer.expected.issuer": "me",
            "sasl.oauthbearer.expected.audience": "kafka",
            "sasl.oauthbearer.token.endpoint.url": token.as_uri(),
        }
        super().__init__(folder, "OAUTHBEARER", settings)

    def passing_for_a_broker(self, broker_id: int) -> Connection:
        """A connection of somebody who has got hold of what brokers log in with."""
        wire = Connection(self.address(broker_id))
        assert shake_hands(wire, "OAUTHBEARER").error_code.value == 0
        assert authenticate(wire, b"n,,\1auth=Bearer %s\1\1" % self.token.encode()).auth_bytes == b""
        return wire


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TokenCluster]:
    with TokenCluster(tmp_path_factory.mktemp("tokens")) as cluster:
        cluster.create("replicated", 1, 2, min_insync_replicas="2")
        yield cluster


def test_brokers_log_in_by_tokens(cluster: TokenCluster) -> None:
    cluster.replicate(Sender(cluster, "replicated", **ADMIN), 2)


def test_no_quota_of_clients_holds_up_replication(cluster: TokenCluster) -> None:
    """Brokers are users with client ids, too, but a quota of all users is none of theirs."""
    limits: list[tuple[str, float | None]] = [
        ("producer_byte_rate", 100.0), ("consumer_byte_rate", 100.0),
        ("request_percentage", 0.01), ("controller_mutation_rate", 0.01),
    ]  # fmt: skip
    everybody = ([("user", None)], [("client-id", None)], [("user", None), ("client-id", None)], [("user", "kafka")])
    limited = [alteration(each, limits) for each in everybody]
    nothing = [alteration([("user", "admin")], [(key, 1e12) for key, _ in limits])]
    with cluster.connection(1) as admin:
        assert [each["error_code"] for each in alter(admin, *limited, *nothing)] == [0] * 5

    def is_throttled() -> bool:
        with cluster.passing_for_a_broker(1) as client:
            return bool(client.ask(DESCRIBE_CLUSTER, 0, {}).throttle_time)

    wait_until(is_throttled, "the limits to be in force, for this one too")
    began = time.monotonic()
    sender = Sender(cluster, "replicated", **ADMIN)
    for _ in range(20):
        sender.send(500)  # 20 times in a hundred what the limits allow in a second
        sender.finish()
    assert sender.errors == []
    assert time.monotonic() - began < 60
    cluster.create("made-meanwhile", 10, 2)
    lifted = [_without(each) for each in (*limited, *nothing)]
    with cluster.connection(1) as admin:
        assert [each["error_code"] for each in alter(admin, *lifted)] == [0] * 5


def _without(entry: dict[str, Any]) -> dict[str, Any]:
    return {**entry, "ops": [{**each, "remove": True} for each in entry["ops"]]}


def test_the_login_of_brokers_makes_nobody_a_broker(cluster: TokenCluster) -> None:
    """The rules allow everything to it, but it has not proved to know the cluster's secret."""
    metadata = cluster.folder / "metadata"
    cluster_id, _ = secret_of(metadata)
    for broker_id in cluster.nodes:
        other = 3 - broker_id
        with cluster.passing_for_a_broker(broker_id) as stranger:
            stranger.send_frame(envelope("forged"))
            assert stranger.receive_frame() is None
        with cluster.passing_for_a_broker(broker_id) as stranger:
            hello = inter_broker.BrokerHelloRequest(
                cluster_id=cluster_id, broker_id=i32(other), peer_id=i32(broker_id), nonce=bytes(32)
            )
            assert tell(stranger, hello).error_code is ErrorCode.none
            proof = tell(stranger, inter_broker.BrokerProofRequest(proof=bytes(32)))
            assert proof.error_code is ErrorCode.cluster_authorization_failed
            stranger.send_frame(envelope("forged"))
            assert stranger.receive_frame() is None
    controller = cluster.controller()
    with cluster.passing_for_a_broker(controller) as broker:  # the same envelope, of one who knows it
        introduce(broker, metadata, 3 - controller, controller)
        broker.send_frame(envelope("forwarded"))
        assert broker.receive_frame() is not None
    wait_until(lambda: "forwarded" in cluster.metadata().topics, "the topic out of the envelope")
    assert "forged" not in cluster.metadata().topics


def envelope(topic: str) -> bytes:
    """A request that forwards the creation of a topic in the administrator's name."""
    wanted = {"name": topic, "num_partitions": 1, "replication_factor": 1}
    principal = BytesIO()
    principal.write(bytes(2))  # its version
    entity_writer(DefaultPrincipalData)(
        principal, DefaultPrincipalData(type_="User", name="admin", token_authenticated=False)
    )
    values = {
        "request_data": request(CREATE_TOPICS, 7, 1, {"topics": [wanted], "timeout": 10_000}),
        "request_principal": principal.getvalue(),
        "client_host_address": bytes((127, 0, 0, 1)),
    }
    return request(ENVELOPE, 0, 1, values)
