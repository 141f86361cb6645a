"""Brokers that talk to ZooKeeper by TLS, and those that keep the metadata there to themselves."""

from __future__ import annotations

import asyncio
import subprocess
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from barnabas.broker.assembly import open_store
from barnabas.metadata.stores.store import StoreRefused
from barnabas.metadata.stores.zookeeper import Login, ZooKeeperStore
from barnabas.model.config.broker import BrokerConfig
from barnabas.testing.broker import Broker, BrokerFailed
from tests.support.certificates import Authority
from tests.support.zookeeper import ZooKeeper

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from barnabas.metadata.stores.store import MetadataStore


def as_java_reads_it(pem: str) -> str:
    """The same with its key in PKCS8, the only form that Java reads."""
    done = subprocess.run(
        ["openssl", "pkcs8", "-topk8", "-nocrypt"], input=pem, capture_output=True, check=True, text=True
    )
    return done.stdout + pem[pem.index("-----BEGIN CERTIFICATE") :]


@pytest.fixture(scope="module")
def authority() -> Authority:
    return Authority()


@pytest.fixture(scope="module")
def zookeeper(tmp_path_factory: pytest.TempPathFactory, authority: Authority) -> Iterator[ZooKeeper]:
    folder = tmp_path_factory.mktemp("zookeeper")
    issued = authority.issue("127.0.0.1")
    keystore = issued.write(folder / "zookeeper.pem", as_java_reads_it(issued.pem))
    truststore = authority.write(folder / "ca.pem")
    server = ZooKeeper(folder, keystore=keystore, truststore=truststore, users={"brokers": "sesame"})
    yield server
    server.kill()


def test_a_broker_keeps_its_metadata_in_a_zookeeper_with_tls(
    zookeeper: ZooKeeper, authority: Authority, tmp_path: Path
) -> None:
    settings = {
        "zookeeper.connect": f"{zookeeper.secure}/tls",
        "zookeeper.ssl.client.enable": True,
        "zookeeper.clientCnxnSocket": "org.apache.zookeeper.ClientCnxnSocketNetty",
        "zookeeper.ssl.keystore.location": authority.issue("broker").write(tmp_path / "broker.pem"),
        "zookeeper.ssl.truststore.location": authority.write(tmp_path / "ca.pem"),
    }
    with Broker(settings) as broker:
        producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
        producer.produce("t", b"x")
        assert producer.flush(30) == 0
        broker.restart()
        assert "t" in Producer({"bootstrap.servers": broker.bootstrap_servers}).list_topics(timeout=10).topics
    stranger = Authority().write(tmp_path / "stranger.pem")
    impatient = {"zookeeper.ssl.truststore.location": stranger, "zookeeper.connection.timeout.ms": 2000}
    with pytest.raises(BrokerFailed, match="no ZooKeeper answers"):
        Broker(settings | impatient).start()


async def nodes(store: MetadataStore, path: str = "/") -> list[str]:
    """All there are, from the top."""
    found = [path]
    for name in await store.children(path):
        found += await nodes(store, f"{path.rstrip('/')}/{name}")
    return found


@pytest.mark.parametrize("scheme", ["digest", "sasl"])
async def test_what_brokers_keep_in_zookeeper_is_for_their_login_alone(
    zookeeper: ZooKeeper, tmp_path: Path, scheme: str
) -> None:
    connect = f"{zookeeper.connect}/private-{scheme}"
    settings = {
        "zookeeper.connect": connect,
        "zookeeper.set.acl": "true",
        "zookeeper.auth.scheme": scheme,
        "zookeeper.auth.username": "brokers",
        "zookeeper.auth.password": "sesame",
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",
        "delegation.token.secret.key": "key",
    }
    async with Broker(settings) as broker:
        client = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
        client.create_topics([NewTopic("t", 1, 1)])["t"].result(30)
        rule = AclBinding(
            ResourceType.TOPIC,
            "t",
            ResourcePatternType.LITERAL,
            "User:a",
            "*",
            AclOperation.READ,
            AclPermissionType.ALLOW,
        )
        client.create_acls([rule])[rule].result(30)
        change = UserScramCredentialUpsertion("a", ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096), b"wonder")
        client.alter_user_scram_credentials([change])["a"].result(30)
        await asyncio.to_thread(broker.restart)
        client = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
        assert "t" in client.list_topics(timeout=30).topics
        owner = open_store(BrokerConfig.load(settings))
        strangers = [
            ZooKeeperStore(zookeeper.connect),
            ZooKeeperStore(zookeeper.connect, login=Login("digest", "brokers", "guessed")),
        ]
        for store in (owner, *strangers):
            await store.start()
        try:
            found = await nodes(owner)
            assert {"/brokers/ids/1", "/config/users/a", "/kafka-acl/Topic/t", "/brokers/topics/t"} <= {*found}
            for stranger in strangers:
                for path in (f"/private-{scheme}{each}".rstrip("/") for each in found):
                    with pytest.raises(StoreRefused, match="does not let this broker use"):
                        await stranger.get(path)
                    with pytest.raises(StoreRefused, match="does not let this broker use"):
                        await stranger.set(path, b"mine")
                    with pytest.raises(StoreRefused, match="does not let this broker use"):
                        await stranger.create(f"{path}/mine")
        finally:
            for store in (owner, *strangers):
                await store.close()
    without = {
        name: text for name, text in settings.items() if not name.startswith(("zookeeper.auth", "zookeeper.set"))
    }
    with pytest.raises(BrokerFailed, match=r"does not let this broker use .*zookeeper\.auth\.username"):
        Broker(without).start()
