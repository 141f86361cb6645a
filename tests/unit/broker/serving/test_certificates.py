"""A broker's certificates: loaded, loaded again when files or settings change, refused with a reason."""

from __future__ import annotations

import asyncio
import ssl
import threading
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from barnabas.broker.serving import certificates as module
from barnabas.broker.serving.certificates import Certificates
from barnabas.broker.settings import Settings
from barnabas.machines.controller.image import ConfigResource
from barnabas.metadata.images.cache import MetadataCache
from barnabas.model.config.broker import BrokerConfig
from barnabas.model.config.principal_rules import NoMatchingRule
from barnabas.model.errors import ConfigError, InvalidRequest
from barnabas.net.contexts import listener_context
from tests.support.certificates import Authority
from tests.support.images import ClusterOf
from tests.support.waiting import until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from barnabas.model.config.per_listener import ListenerValues
    from barnabas.net.contexts import TlsContext


class Setting:
    """Files, and settings that the test changes."""

    def __init__(self, folder: Path, **settings: str) -> None:
        self.authority = Authority()
        self.keystore = folder / "broker.pem"
        self.authority.issue("127.0.0.1", common_name="broker").write(self.keystore)
        self.authority.write(folder / "ca.pem")
        self.cache = MetadataCache(ClusterOf(leaders={"a": (1,)}).image())
        given = {
            "listeners": "SSL://127.0.0.1:9093,CLIENTS://127.0.0.1:9094",
            "listener.security.protocol.map": "SSL:SSL,CLIENTS:SASL_SSL",
            "sasl.enabled.mechanisms": "SCRAM-SHA-256",
            "inter.broker.listener.name": "SSL",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(self.keystore),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(folder / "ca.pem"),
            **{name.replace("_", "."): text for name, text in settings.items()},
        }
        self.settings = Settings(BrokerConfig.load(given), self.cache)
        self.certificates = Certificates(self.settings)
        ssl_listener = self.settings.static.listeners[0]
        get = self.certificates.listener(ssl_listener)
        assert get is not None
        self.context = get

    @property
    def subject(self) -> str:
        """Of the certificate that the next client is shown."""
        shown = self.context().certificate
        assert shown is not None
        return shown.subject

    def set(self, **settings: str) -> None:
        texts = {name.replace("_", "."): text for name, text in settings.items()}
        self.cache.replace(replace(self.cache.image, configs={ConfigResource.broker(1): texts}))


@asynccontextmanager
async def running(setting: Setting) -> AsyncIterator[None]:
    await setting.certificates.load()
    setting.certificates.start()
    try:
        yield
    finally:
        await setting.certificates.stop()


async def test_a_changed_file_is_loaded_again_and_a_bad_one_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(module, "WATCH_SECONDS", 0.02)
    setting = Setting(tmp_path)
    async with running(setting):
        first, client = setting.context(), setting.certificates.client()
        setting.authority.issue("127.0.0.1", common_name="broker").write(setting.keystore)
        await until(lambda: setting.context() is not first)
        assert setting.certificates.client() is not client
        second = setting.context()
        setting.keystore.write_text("half a file")
        await until(lambda: "must have one private key" in caplog.text)
        setting.authority.issue("127.0.0.1", common_name="another").write(setting.keystore)
        await until(lambda: "ssl.allow.dn.changes" in caplog.text)
        Authority().issue("127.0.0.1", common_name="broker").write(setting.keystore)
        await until(lambda: "would not trust each other" in caplog.text)
        setting.keystore.unlink()
        await until(lambda: "cannot be read" in caplog.text)
        assert setting.context() is second
        setting.authority.issue("127.0.0.1", common_name="broker").write(setting.keystore)
        await until(lambda: setting.context() is not second)


async def test_a_certificate_that_only_openssl_can_read_is_not_the_last_that_is_looked_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(module, "WATCH_SECONDS", 0.02)
    setting = Setting(tmp_path)
    async with running(setting):
        first = setting.context()
        new = setting.authority.issue("127.0.0.1", common_name="broker")
        der = ssl.PEM_cert_to_DER_cert(new.certificate)
        odd = ssl.DER_cert_to_PEM_cert(der.replace(b"30000101000000Z", b"3000010100000AZ"))
        assert odd != new.certificate
        new.write(setting.keystore, new.key + odd)
        await until(lambda: "old ones stay in use: listener SSL: the own certificate in the keystore" in caplog.text)
        assert setting.context() is first
        with monkeypatch.context() as failing:
            failing.setattr(setting.certificates, "_load", None)
            new.write(setting.keystore, new.key)
            await until(lambda: "TypeError" in caplog.text)
        new.write(setting.keystore)
        await until(lambda: setting.context() is not first)


async def test_a_location_that_is_no_path_is_not_the_last_that_is_looked_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(module, "WATCH_SECONDS", 0.02)
    setting = Setting(tmp_path)
    async with running(setting):
        first = setting.context()
        setting.set(listener_name_ssl_ssl_keystore_location="\0")
        await until(lambda: "old ones stay in use" in caplog.text)
        setting.set()
        await until(lambda: setting.context() is not first)
        second = setting.context()
        setting.authority.issue("127.0.0.1", common_name="broker").write(setting.keystore)
        await until(lambda: setting.context() is not second)


async def test_of_two_changes_the_second_stays_however_long_the_first_is_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    setting = Setting(tmp_path)
    begun, go_on = threading.Event(), threading.Event()

    def slow(values: ListenerValues, client_auth: str) -> TlsContext:
        if client_auth == "requested":
            begun.set()
            assert go_on.wait(30)
        return listener_context(values, client_auth)

    monkeypatch.setattr(module, "listener_context", slow)
    async with running(setting):
        setting.set(listener_name_ssl_ssl_client_auth="requested")
        await until(begun.is_set)
        setting.set(listener_name_ssl_ssl_client_auth="required")
        await asyncio.sleep(0.1)  # in which it could be loaded, were it not for the first
        go_on.set()
        await until(lambda: caplog.text.count("were loaded again") == 2)
        assert setting.context().context.verify_mode is ssl.CERT_REQUIRED


async def test_a_setting_is_checked_before_and_used_after(tmp_path: Path) -> None:
    setting = Setting(tmp_path)
    other = setting.authority.issue("127.0.0.1", common_name="another").write(tmp_path / "other.pem")
    name = "listener.name.ssl.ssl.keystore.location"
    async with running(setting):
        check = setting.certificates.check
        with pytest.raises(InvalidRequest, match=r"listener SSL: .*ssl\.allow\.dn\.changes"):
            await check({name: str(other)}, all_brokers=False)
        with pytest.raises(InvalidRequest, match="cannot be read"):
            await check({name: str(tmp_path / "absent")}, all_brokers=False)
        await check({name: str(setting.keystore)}, all_brokers=False)
        await check({"num.io.threads": "3"}, all_brokers=True)
        first = setting.context()
        setting.set(listener_name_ssl_ssl_cipher_suites="TLS_AES_256_GCM_SHA384")
        await until(lambda: setting.context() is not first)
        assert setting.context().context.minimum_version == ssl.TLSVersion.TLSv1_3
        setting.set(listener_name_ssl_ssl_client_auth="required")
        await until(lambda: setting.context().context.verify_mode is ssl.CERT_REQUIRED)


async def test_what_cannot_be_used_stops_the_start(tmp_path: Path) -> None:
    setting = Setting(tmp_path)
    setting.keystore.write_text("nothing")
    with pytest.raises(ConfigError, match="listener SSL: "):
        await setting.certificates.load()


def test_a_certificate_names_a_principal_on_listeners_without_sasl(tmp_path: Path) -> None:
    setting = Setting(tmp_path, ssl_principal_mapping_rules="RULE:^CN=(.*?),.*$/$1/U")
    shown = ssl.PEM_cert_to_DER_cert(setting.authority.issue("a", common_name="alice").certificate)
    nameless = ssl.PEM_cert_to_DER_cert(setting.authority.issue("a").certificate)
    principal = setting.certificates.principal
    assert principal("SSL", shown) == "User:ALICE"
    assert principal("CLIENTS", shown) is None
    with pytest.raises(NoMatchingRule):
        principal("SSL", nameless)


async def test_a_broker_without_tls_has_nothing_to_load(tmp_path: Path) -> None:
    settings = Settings(BrokerConfig.load({}), MetadataCache())
    certificates = Certificates(settings)
    await certificates.load()
    assert certificates.client() is None
    assert certificates.listener(settings.static.listeners[0]) is None
