"""Brokers that talk to ZooKeeper by TLS."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Producer

from barnabas.testing.broker import Broker, BrokerFailed
from tests.support.certificates import Authority
from tests.support.zookeeper import ZooKeeper

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


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
    server = ZooKeeper(folder, keystore=keystore, truststore=authority.write(folder / "ca.pem"))
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
