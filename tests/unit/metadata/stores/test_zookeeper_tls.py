"""Connections to ZooKeeper by TLS: each shows the certificate that is in the keystore by then."""

from __future__ import annotations

import asyncio
import ssl
from typing import TYPE_CHECKING

import pytest

from barnabas.metadata.stores.zookeeper import ZooKeeperStore
from barnabas.model.config.broker import BrokerConfig
from barnabas.model.config.zookeeper_tls import zookeeper_tls
from barnabas.model.errors import ConfigError
from barnabas.net.contexts import ClientContexts
from tests.support.certificates import Authority
from tests.support.waiting import until

if TYPE_CHECKING:
    from pathlib import Path


def contexts(keystore: Path, truststore: Path) -> ClientContexts:
    values = zookeeper_tls(
        BrokerConfig.load(
            {
                "zookeeper.ssl.client.enable": "true",
                "zookeeper.ssl.keystore.location": str(keystore),
                "zookeeper.ssl.truststore.location": str(truststore),
            }
        )
    )
    assert values is not None
    return ClientContexts(values)


async def test_a_new_certificate_is_shown_to_zookeeper_from_the_next_connection_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    authority = Authority()
    here = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cadata=authority.pem)
    here.load_cert_chain(authority.issue("127.0.0.1").write(tmp_path / "zookeeper.pem"))
    here.verify_mode = ssl.CERT_REQUIRED
    shown: list[str] = []

    async def turn_away(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        certificate = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
        shown.append(ssl.DER_cert_to_PEM_cert(certificate).strip())
        writer.close()

    keystore, ca = tmp_path / "broker.pem", authority.write(tmp_path / "ca.pem")
    first, second = (authority.issue("broker", common_name="broker") for _ in range(2))
    first.write(keystore)
    async with await asyncio.start_server(turn_away, "127.0.0.1", 0, ssl=here) as server:
        port = server.sockets[0].getsockname()[1]
        store = ZooKeeperStore(f"127.0.0.1:{port}", tls=contexts(keystore, ca))
        store._client.start_async()  # which `start` waits for, and here in vain
        await until(lambda: first.certificate.strip() in shown)
        second.write(tmp_path / "new.pem").rename(keystore)
        await until(lambda: second.certificate.strip() in shown)
        keystore.write_text("half a file")
        await until(lambda: "New certificates for ZooKeeper are not used, the old ones stay" in caplog.text)
        before = len(shown)
        await until(lambda: len(shown) > before)
        assert shown[-1] == second.certificate.strip()
        await asyncio.to_thread(store._stop)


def test_a_broker_does_not_start_with_a_certificate_for_zookeeper_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read"):
        contexts(tmp_path / "absent.pem", Authority().write(tmp_path / "ca.pem"))
