"""The metrics listener of a whole broker: while it recovers, when it runs, when its disk has failed, with a token."""

from __future__ import annotations

import asyncio
import json
import ssl
import threading
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, cast

import pytest
from prometheus_client.parser import text_string_to_metric_families as parse_prometheus

from barnabas.broker.app import App
from barnabas.broker.metrics.scrape import Scraper
from barnabas.cli.common.remedies import with_remedy
from barnabas.cli.top import reading as top
from barnabas.clients.scraping import MetricsAccess
from barnabas.console.cluster.metrics import TrafficReader
from barnabas.console.cluster.snapshot import ClusterSnapshot
from barnabas.model.config.broker import BrokerConfig
from barnabas.model.config.listeners import MetricsAddress, metrics_listener
from barnabas.model.errors import ConfigError
from barnabas.storage.manager import LogManager
from tests.support.certificates import Authority
from tests.support.waiting import until
from tests.unit.broker.metrics.test_http import ask, get, status

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from barnabas.console.cluster.observer import Observer

NOBODY_HANGS = ClusterSnapshot(at=0.0, cluster_id="c", controller=0, brokers={}, topics={}, ends={}, silent={})


def config(folder: Path, **more: str) -> BrokerConfig:
    return BrokerConfig.load(
        {
            "log.dirs": str(folder / "data"),
            "listeners": "PLAINTEXT://127.0.0.1:0",
            "advertised.listeners": "PLAINTEXT://127.0.0.1:0",
            "metrics.listener": "127.0.0.1:0",
            **more,
        }
    )


@asynccontextmanager
async def running(folder: Path, **more: str) -> AsyncIterator[tuple[App, int]]:
    app = App(config(folder, **more))
    try:
        ready = await app.start()
        assert ready.metrics_port is not None
        yield app, ready.metrics_port
    finally:
        await app.stop()


async def read(port: int, path: str, *headers: str) -> tuple[int, Any]:
    answer = await ask(port, get(path, *headers))
    body = answer.partition(b"\r\n\r\n")[2]
    return status(answer), body.decode() if path == "/metrics" else json.loads(body)


def values(page: str) -> dict[str, float]:
    return {sample.name: sample.value for family in parse_prometheus(page) for sample in family.samples}


async def test_a_broker_tells_its_figures_and_that_it_is_well(tmp_path: Path) -> None:
    async with running(tmp_path) as (_, port):
        code, page = await read(port, "/metrics")
        assert code == 200
        found = values(page)
        assert found["kafka_server_kafkaserver_brokerstate"] == 3
        assert found["kafka_controller_kafkacontroller_activecontrollercount"] == 1
        assert found["barnabas_metrics_failed_sources"] == 0
        for path in ("/health", "/v1/ready"):
            code, said = await read(port, path)
            assert (code, said["status"]) == (200, "ok")
        assert await read(port, "/v1/slow-requests") == (200, {"slowRequests": []})


async def test_a_broker_that_loads_its_logs_can_be_watched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    loading, go_on = threading.Event(), threading.Event()
    load = LogManager.load

    def load_slowly(self: LogManager, **words: Any) -> None:
        loading.set()
        assert go_on.wait(30)
        load(self, **words)

    monkeypatch.setattr(LogManager, "load", load_slowly)
    app = App(config(tmp_path))
    starting = asyncio.create_task(app.start())
    try:
        await asyncio.to_thread(loading.wait, 30)
        metrics = app._metrics
        assert metrics is not None
        port = metrics.port
        code, state = await read(port, "/v1/broker-state")
        assert (code, state["brokerState"]) == (200, 2)
        assert state["recoveryState"] == {"remainingLogsToRecover": 0}
        code, ready = await read(port, "/v1/ready")
        assert code == 503
        assert "Logs are being loaded." in [check["reason"] for check in ready["checks"]]
        code, page = await read(port, "/metrics")
        assert (code, values(page)["kafka_server_kafkaserver_brokerstate"]) == (200, 2)
    finally:
        go_on.set()
        await starting
        await app.stop()


async def test_a_failed_directory_is_told_with_its_reason(tmp_path: Path) -> None:
    async with running(tmp_path) as (app, port):
        next(iter(app.broker.logs._directories.values())).distrust("the disk is on fire")
        code, health = await read(port, "/health")
        assert code == 503
        assert [check["reason"] for check in health["checks"] if not check["ok"]] == ["the disk is on fire"]
        code, page = await read(port, "/metrics")
        assert (code, values(page)["kafka_log_logmanager_offlinelogdirectorycount"]) == (200, 1)


async def test_figures_need_the_token_and_probes_do_not(tmp_path: Path) -> None:
    async with running(tmp_path, **{"metrics.token": "secret"}) as (_, port):
        for path in ("/metrics", "/health", "/v1/slow-requests"):
            assert status(await ask(port, get(path))) == 401
            assert (await read(port, path, "Authorization: Bearer secret"))[0] == 200
        assert (await read(port, "/v1/ready"))[0] == 200


async def test_tls_where_it_is_set(tmp_path: Path) -> None:
    authority = Authority()
    keystore = authority.issue("127.0.0.1").write(tmp_path / "metrics.pem")
    settings = {
        "metrics.security.protocol": "SSL",
        "listener.name.metrics.ssl.keystore.type": "PEM",
        "listener.name.metrics.ssl.keystore.location": str(keystore),
    }
    async with running(tmp_path, **settings) as (_, port):
        context = ssl.create_default_context(cadata=authority.pem)
        reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
        writer.write(get("/metrics"))
        async with asyncio.timeout(10):
            answer = await reader.read()
        writer.close()
        assert status(answer) == 200
        assert b'barnabas_certificate_expiry_timestamp_seconds{listener="METRICS"}' in answer


async def test_top_and_the_console_read_figures_behind_tls_and_a_token(tmp_path: Path) -> None:
    """Each says what is missing, when the token or the authority is."""
    authority = Authority()
    keystore = authority.issue("127.0.0.1").write(tmp_path / "metrics.pem")
    trusted = authority.write(tmp_path / "ca.pem")
    settings = {
        "metrics.token": "secret",
        "metrics.security.protocol": "SSL",
        "listener.name.metrics.ssl.keystore.type": "PEM",
        "listener.name.metrics.ssl.keystore.location": str(keystore),
    }
    async with running(tmp_path, **settings) as (_, port):
        address = f"https://127.0.0.1:{port}"
        found = await asyncio.to_thread(top.read, address, MetricsAccess("secret", trusted))
        assert found.failure is None
        assert found.total("kafka_server_replicamanager_partitioncount") == 0
        for access, top_says, console_says in (
            (MetricsAccess("secret", None), "CERTIFICATE_VERIFY_FAILED", "--metrics-ca-file"),
            (MetricsAccess("wrong", trusted), "--token-file", "--metrics-token-file"),
            (MetricsAccess(None, trusted), "--token-file", "--metrics-token-file"),
        ):
            found = await asyncio.to_thread(top.read, address, access)
            assert top_says in (found.failure or "")
            reader = TrafficReader(cast("Observer", None), (f"{address}/metrics",), access, with_remedy)
            assert await reader.traffic(NOBODY_HANGS) is None
            assert console_says in (reader.failure or "")


async def test_scrapes_at_the_same_time_are_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = asked = 0
    make, page = Scraper._make, Scraper.page

    async def count(self: Scraper, *words: Any) -> Any:
        nonlocal made
        made += 1
        await until(lambda: asked == 4)
        return await make(self, *words)

    async def ask_for(self: Scraper, *words: Any) -> Any:
        nonlocal asked
        asked += 1
        return await page(self, *words)

    monkeypatch.setattr(Scraper, "_make", count)
    monkeypatch.setattr(Scraper, "page", ask_for)
    async with running(tmp_path) as (_, port):
        answers = await asyncio.gather(*(read(port, "/metrics") for _ in range(4)))
        assert {code for code, _ in answers} == {200}
        assert made == 1


async def test_a_source_that_fails_takes_nothing_from_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    from barnabas.broker.metrics.series.groups import GroupSeries

    async def fail(self: GroupSeries, pace: object) -> Any:
        raise RuntimeError("a defect")

    monkeypatch.setattr(GroupSeries, "collect", fail)
    async with running(tmp_path) as (_, port):
        _, page = await read(port, "/metrics")
        assert 'barnabas_metrics_failed_sources{source="groups"} 1' in page
        assert 'barnabas_metrics_failed_sources{source="broker"} 0' in page
        assert "a defect" in caplog.text


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("9404", ("localhost", 9404)),
        (":9404", ("localhost", 9404)),
        ("0.0.0.0:1", ("0.0.0.0", 1)),
        ("[::1]:9404", ("::1", 9404)),
    ],
)
def test_an_address_without_a_host_is_the_loopback(text: str, expected: tuple[str, int]) -> None:
    found = metrics_listener(BrokerConfig.load({"log.dirs": "/nowhere", "metrics.listener": text}))
    assert found == MetricsAddress(*expected, uses_tls=False)


@pytest.mark.parametrize("text", ["localhost", "localhost:99999", "http://x:1", "a b:1"])
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match=r"metrics\.listener"):
        BrokerConfig.load({"log.dirs": "/nowhere", "metrics.listener": text})
