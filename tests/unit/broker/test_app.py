"""What a broker asks of the system before it starts, and why it stops by itself."""

from __future__ import annotations

import asyncio
import os
import resource
import signal
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from barnabas.broker import app, assembly
from barnabas.broker.controller.link import ControllerLink
from barnabas.broker.serving.limits import server_limits
from barnabas.metadata.membership import DuplicateBroker
from barnabas.metadata.stores.sqlite import SqliteStore
from barnabas.metadata.stores.zookeeper import ZooKeeperStore
from barnabas.model.config.broker import BrokerConfig
from barnabas.model.errors import StartupError
from barnabas.model.remedies import Remedy, RemedyKind

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

CONFIG = BrokerConfig.load({"log.dirs": "/nowhere"})
NONE = resource.RLIM_INFINITY


@pytest.fixture
def limits(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[tuple[int, int]]]:
    """Set the limits that the system reports; gives those that it was asked for."""

    def use(soft: int, hard: int, *, refuse: bool = False) -> list[tuple[int, int]]:
        asked: list[tuple[int, int]] = []

        def setrlimit(_: int, wanted: tuple[int, int]) -> None:
            asked.append(wanted)
            if refuse:
                raise ValueError("current limit exceeds maximum limit")

        monkeypatch.setattr(resource, "getrlimit", lambda _: (soft, hard))
        monkeypatch.setattr(resource, "setrlimit", setrlimit)
        return asked

    return use


@pytest.mark.parametrize(
    ("soft", "hard", "asked"),
    [
        (1024, 4096, [(4096, 4096)]),
        (4096, 4096, []),
        (256, NONE, [(app.OPEN_FILES, NONE)]),
        (NONE, NONE, []),
    ],
)
def test_the_limit_of_open_files_is_raised_as_far_as_it_goes(
    limits: Callable[..., list[tuple[int, int]]], soft: int, hard: int, asked: list[tuple[int, int]]
) -> None:
    seen = limits(soft, hard)
    app._raise_file_limit()
    assert seen == asked


def test_a_system_that_refuses_more_is_lived_with(limits: Callable[..., list[tuple[int, int]]]) -> None:
    seen = limits(256, NONE, refuse=True)
    app._raise_file_limit()
    assert len(seen) == 1


def test_connections_leave_descriptors_for_the_logs(limits: Callable[..., list[tuple[int, int]]]) -> None:
    limits(1000, 1000)
    assert server_limits(CONFIG).connections.max_connections == 700
    limits(NONE, NONE)
    assert server_limits(CONFIG).connections.max_connections == CONFIG.number("max.connections")


def test_a_broker_whose_id_was_taken_stops_and_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reason = DuplicateBroker("a broker with id 1 is already up at elsewhere:9092", 0.0)
    log = tmp_path / "data"
    config = BrokerConfig.load(
        {"log.dirs": str(log), "metadata.store": str(tmp_path / "tree"), "listeners": "PLAINTEXT://localhost:0"}
    )
    apps: list[app.App] = []

    class Watched(app.App):
        async def start(self) -> app.ReadyInfo:
            apps.append(self)
            return await super().start()

    def take_id(_: app.ReadyInfo) -> None:
        (running,) = apps
        image = running.broker.metadata.image
        running.broker.metadata.replace(
            replace(image, brokers={**image.brokers, 2: replace(image.brokers[1], broker_id=2)})
        )
        loop = asyncio.get_running_loop()
        loop.call_soon(running.broker.membership.give_up, reason)
        loop.call_later(20, os.kill, os.getpid(), signal.SIGTERM)  # instead of running for ever

    async def nobody_to_ask(link: ControllerLink) -> int:
        raise AssertionError("a broker without an id has nothing that others could lead instead")

    monkeypatch.setattr(app, "App", Watched)
    monkeypatch.setattr(ControllerLink, "shut_down", nobody_to_ask)
    with pytest.raises(DuplicateBroker, match="already up at elsewhere:9092"):
        app.run(config, take_id)
    assert (log / ".kafka_cleanshutdown").exists()


def test_where_there_are_two_metadata_trees_the_operator_chooses(tmp_path: Path) -> None:
    properties = {"log.dirs": str(tmp_path / "data"), "zookeeper.connect": "localhost:2181/kafka"}
    (tmp_path / "data.metadata").touch()
    (tmp_path / "data.metadata.sessions").mkdir()
    with pytest.raises(StartupError, match=r"two metadata trees.*data.metadata.sessions away") as caught:
        assembly.open_store(BrokerConfig.load(properties))
    assert caught.value.remedy == Remedy(RemedyKind.UNSET_CONFIG, "zookeeper.connect")
    assert isinstance(assembly.open_store(BrokerConfig.load({**properties, "zookeeper.connect": ""})), SqliteStore)
    (tmp_path / "data.metadata").unlink()
    assert isinstance(assembly.open_store(BrokerConfig.load(properties)), ZooKeeperStore)


async def test_a_start_that_is_refused_leaves_no_metadata_store_behind(tmp_path: Path) -> None:
    """`barnabas start` on a directory of `start --brokers` made a store of its own beside it before it was refused."""

    def configured(**more: str) -> BrokerConfig:
        given = {"log.dirs": str(tmp_path / "1"), "broker.id": "1", "listeners": "PLAINTEXT://127.0.0.1:0", **more}
        return BrokerConfig.load(given)

    running = app.App(configured(**{"metadata.store": str(tmp_path / "metadata")}))
    await running.start()
    try:
        assert f"log directory {tmp_path / '1'} is in use by another broker." in await refusal(configured())
        assert names(tmp_path) == {"1", "metadata", "metadata.sessions"}
    finally:
        await running.stop()
    assert f"belongs to cluster {running.broker.metadata.image.cluster_id}" in await refusal(configured())
    assert f"{tmp_path / 'metadata'} may be it" in await refusal(configured())
    assert "belongs to broker 1" in await refusal(configured(**{"broker.id": "2"}))
    (tmp_path / "1" / "meta.properties").write_text("nonsense=1\n")
    assert "none of the keys" in await refusal(configured())
    (tmp_path / "file").touch()
    assert "is not a directory" in await refusal(configured(**{"log.dirs": str(tmp_path / "file" / "data")}))
    assert names(tmp_path) == {"1", "file", "metadata", "metadata.sessions"}


async def refusal(config: BrokerConfig) -> str:
    """Why a broker does not start."""
    refused = app.App(config)
    try:
        with pytest.raises(StartupError) as raised:
            await refused.start()
    finally:
        await refused.stop()
    return str(raised.value)


def names(folder: Path) -> set[str]:
    return {each.name for each in folder.iterdir() if not each.name.startswith("metadata-")}
