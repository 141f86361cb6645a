"""Brokers that are put together with other parts: several in one process, on one event loop."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest

from barnabas.broker.app import App
from barnabas.broker.assembly import BrokerOptions, assemble
from barnabas.broker.controller import image_reload
from barnabas.broker.serving import certificates
from barnabas.machines.controller.requests import TopicToCreate
from barnabas.metadata.stores.sqlite import SqliteStore
from barnabas.metadata.znodes import ConfigNode
from barnabas.model.clock import ManualClock
from barnabas.model.config.broker import BrokerConfig
from barnabas.model.errors import ConfigError
from barnabas.net.channel import Channel
from barnabas.net.server import Server
from barnabas.storage.files import FileSystem
from tests.support.certificates import Authority
from tests.support.parts import append
from tests.support.waiting import until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping
    from pathlib import Path

    from barnabas.broker.context import BrokerContext
    from barnabas.metadata.images.cache import Delta
    from barnabas.net.channel import ChannelOptions

pytestmark = pytest.mark.slow

NOW = 1_700_000_000_000


def config(folder: Path, broker_id: int, settings: Mapping[str, str] | None = None) -> BrokerConfig:
    return BrokerConfig.load(
        {
            **(settings or {}),
            "broker.id": str(broker_id),
            "log.dirs": str(folder / f"data-{broker_id}"),
            "listeners": "PLAINTEXT://127.0.0.1:0",
            "log.cleaner.enable": "false",
            "controlled.shutdown.retry.backoff.ms": "20",  # the last one to stop has nobody to hand its partitions to
        }
    )


@asynccontextmanager
async def brokers(
    folder: Path, *ids: int, settings: Mapping[str, str] | None = None, **parts: Any
) -> AsyncIterator[list[BrokerContext]]:
    """Brokers of one cluster over one SQLite file; the first is the controller."""
    options = BrokerOptions(open_store=lambda _: SqliteStore(folder / "metadata"), **parts)
    async with AsyncExitStack() as stack:
        apps = []
        for broker_id in ids:
            app = App(config(folder, broker_id, settings), options)
            stack.push_async_callback(app.stop)
            await app.start()
            apps.append(app)
        yield [app.broker for app in apps]


def isr(broker: BrokerContext) -> set[int]:
    found = broker.metadata.partition("t", 0)
    return set() if found is None else set(found.isr)


async def test_every_part_of_the_options_is_used(tmp_path: Path) -> None:
    made: list[str] = []

    class Files(FileSystem):
        """Notes that it was used."""

        def make_dir(self, path: str) -> None:
            made.append("files")
            super().make_dir(path)

    def server(*parts: Any) -> Server:
        made.append("server")
        return Server(*parts)

    def channel(host: str, port: int, options: ChannelOptions) -> Channel:
        made.append("channel")
        return Channel(host, port, options)

    async def connect(host: str, port: int) -> Any:
        made.append("connection")
        return await asyncio.open_connection(host, port)

    clock = ManualClock(NOW)
    parts: dict[str, Any] = {"clock": clock, "files": Files(), "make_server": server, "make_channel": channel}
    async with brokers(tmp_path, 1, 2, open_connection=connect, **parts) as (first, second):
        assert first.clock is second.clock is clock
        await until(lambda: set(made) == {"files", "server", "channel"})
        (endpoint,) = second.metadata.image.brokers[2].endpoints.values()
        assert not await first.probe.is_refused(endpoint)
        assert "connection" in made


async def test_two_brokers_in_one_process_replicate(tmp_path: Path) -> None:
    async with brokers(tmp_path, 1, 2) as (first, second):
        await until(lambda: set(first.metadata.image.brokers) == {1, 2})
        await first.controller.create_topics([TopicToCreate("t", 1, 2)])
        await until(lambda: isr(first) == isr(second) == {1, 2})
        (leader,) = [each for each in (first, second) if each.replicas.get("t", 0) is not None]
        partition = leader.replicas.find("t", 0)
        await asyncio.to_thread(partition.log.prepare)
        append(partition, [NOW])
        await until(lambda: partition.leader.high_watermark == 1)


@pytest.mark.parametrize("client_auth", ["none", "required"])
async def test_brokers_replicate_over_tls(
    tmp_path: Path, client_auth: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(certificates, "WATCH_SECONDS", 0.05)
    caplog.set_level("INFO")
    authority = Authority()
    settings = {
        "listener.security.protocol.map": "PLAINTEXT:SSL",
        "ssl.client.auth": client_auth,
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(authority.issue("127.0.0.1").write(tmp_path / "broker.pem")),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(authority.write(tmp_path / "ca.pem")),
    }
    async with brokers(tmp_path, 1, 2, settings=settings) as (first, second):
        await until(lambda: set(first.metadata.image.brokers) == {1, 2})
        endpoints = [broker.endpoints["PLAINTEXT"] for broker in second.metadata.image.brokers.values()]
        assert {endpoint.security_protocol for endpoint in endpoints} == {"SSL"}
        await first.controller.create_topics([TopicToCreate("t", 1, 2)])
        await until(lambda: isr(first) == isr(second) == {1, 2})
        (leader,) = [each for each in (first, second) if each.replicas.get("t", 0) is not None]
        partition = leader.replicas.find("t", 0)
        await asyncio.to_thread(partition.log.prepare)
        append(partition, [NOW])
        await until(lambda: partition.leader.high_watermark == 1)
        new = authority.issue("127.0.0.1").write(tmp_path / "new.pem")
        new.replace(tmp_path / "broker.pem")
        await until(lambda: caplog.text.count("Certificates of PLAINTEXT were loaded again.") == 2)
        append(partition, [NOW])
        await until(lambda: partition.leader.high_watermark == 2)


async def test_a_broker_that_cannot_apply_the_image_is_replaced_and_comes_back_with_its_data(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(image_reload, "FIRST_PAUSE", 0.05)
    fails = False

    def apply(delta: Delta) -> None:
        if fails:
            raise OSError("no space left")

    async with brokers(tmp_path, 1, 2) as (first, second):
        await until(lambda: set(first.metadata.image.brokers) == {1, 2})
        await first.controller.create_topics([TopicToCreate("t", 1, 2)])
        await until(lambda: isr(first) == isr(second) == {1, 2})
        second.metadata.subscribe(apply)
        fails = True
        await first.controller.create_topics([TopicToCreate("other", 1, 2)])
        await until(lambda: second.membership.fence.is_fenced and set(first.metadata.image.brokers) == {1})
        await until(lambda: first.replicas.get("t", 0) is not None)
        assert second.replicas.get("t", 0) is None
        partition = first.replicas.find("t", 0)
        await asyncio.to_thread(partition.log.prepare)
        append(partition, [NOW])
        fails = False
        await until(lambda: isr(first) == {1, 2})
        assert not second.membership.fence.is_fenced
        follower = second.replicas.followed("t", 0)
        assert follower is not None
        await until(lambda: follower.log.log_end_offset == 1)


async def test_nothing_is_started_by_putting_a_broker_together(tmp_path: Path) -> None:
    assembly = assemble(config(tmp_path, 1), BrokerOptions(open_store=lambda _: SqliteStore(tmp_path / "metadata")))
    assert len(asyncio.all_tasks()) == 1
    assembly.broker.validation_pool.close()
    assembly.broker.executor.shutdown()
    assert not list(tmp_path.iterdir())  # noqa: ASYNC240  (nobody else waits for this loop)


@pytest.mark.parametrize("whose", ["1", "<default>"])
async def test_a_class_in_the_tree_that_decides_and_cannot_be_run_stops_the_start(tmp_path: Path, whose: str) -> None:
    name = "listener.name.plaintext.principal.builder.class"
    store = SqliteStore(tmp_path / "metadata")
    await store.start()
    path = f"/config/brokers/{whose}"
    await store.create(path, ConfigNode.encode({name: "com.example.Names"}), parents=True)
    with pytest.raises(ConfigError, match=f"{path} cannot be used: {name} is com.example.Names"):
        async with brokers(tmp_path, 1):
            pass
    await store.set(path, ConfigNode.encode({"log.retention.ms": "5"}))
    async with brokers(tmp_path, 1) as (broker,):
        assert broker.settings.number("log.retention.ms") == 5
    await store.close()
