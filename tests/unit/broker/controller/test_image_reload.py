"""A broker with a part that cannot apply the metadata image: it is fenced until every part has applied all of it."""

from __future__ import annotations

import asyncio
import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

import pytest

from barnabas.broker.controller import image_reload
from barnabas.broker.replication.replicas import ReplicaManager
from barnabas.metadata.stores.sqlite import SqliteStore
from barnabas.metadata.stores.store import ANY_VERSION
from barnabas.model.errors import NotLeaderOrFollower
from barnabas.storage.manager import LogManager
from tests.support.controller_shells import cluster, registration
from tests.support.parts import append, make_topic, running_parts
from tests.support.waiting import until

if TYPE_CHECKING:
    from pathlib import Path

    from barnabas.broker.context import BrokerContext
    from barnabas.metadata.images.cache import Delta

NOW = 1_700_000_000_000


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(image_reload, "FIRST_PAUSE", 0.01)
    monkeypatch.setattr(image_reload, "LONGEST_PAUSE", 0.05)


class Subscriber:
    """Fails so many times."""

    def __init__(self, failures: int) -> None:
        self.left = failures
        self.applied: list[Delta] = []
        self.calls = 0

    def on_change(self, delta: Delta) -> None:
        self.calls += 1
        if self.left:
            self.left -= 1
            raise OSError("no space left")
        self.applied.append(delta)


def files(folder: Path) -> dict[str, bytes]:
    """The data of every log."""
    return {str(path): path.read_bytes() for path in sorted(folder.rglob("*.log")) if path.stat().st_size}


async def with_data(broker: BrokerContext) -> None:
    """A partition with a record."""
    await make_topic(broker, "t")
    append(broker.replicas.find("t", 0), [NOW])


async def until_led(broker: BrokerContext) -> None:
    async with asyncio.timeout(30):
        await until(lambda: broker.replicas.get("t", 0) is not None)


async def test_a_broker_is_fenced_until_the_whole_image_is_applied(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with running_parts(tmp_path) as broker:
        await with_data(broker)
        registered = broker.membership.broker_epoch
        broker.metadata.subscribe((failing := Subscriber(1)).on_change)
        await make_topic(broker, "other", ready=False)
        assert broker.membership.fence.is_fenced
        with pytest.raises(NotLeaderOrFollower):
            broker.replicas.find("t", 0)
        await until_led(broker)
        assert failing.applied[0].is_whole
        assert {topic.name for topic in failing.applied[0].created} == {"t", "other"}
        partition = broker.replicas.find("t", 0)
        assert partition.log.log_end_offset == 1
        assert broker.membership.broker_epoch > registered
        assert broker.replicas.get("other", 0) is not None
        assert "Subscriber.on_change could not apply the metadata image: OSError('no space left')" in caplog.text


async def test_a_broker_whose_subscriber_fails_every_time_stays_fenced_and_keeps_its_data(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "barnabas")
    async with running_parts(tmp_path) as broker:
        await with_data(broker)
        before = files(tmp_path)
        broker.metadata.subscribe((failing := Subscriber(10**9)).on_change)
        await make_topic(broker, "other", ready=False)
        loop = asyncio.get_running_loop()
        began = loop.time()
        async with asyncio.timeout(30):
            await until(lambda: failing.calls >= 8)
        pauses = [float(seconds) for seconds in re.findall(r"applied again in ([\d.]+) s", caplog.text)]
        assert pauses[:5] == [0.01, 0.02, 0.04, 0.05, 0.05]
        assert loop.time() - began >= sum(pauses[:-1])
        assert broker.membership.fence.is_fenced
        assert list(broker.replicas.all()) == []
        assert "This broker is fenced" in caplog.text
        assert files(tmp_path) == before
        assert broker.controller.is_active
        failing.left = 0
        await until_led(broker)
        assert broker.replicas.find("t", 0).log.log_end_offset == 1
        assert files(tmp_path) == before


class StuckReplicas(ReplicaManager):
    """Cannot resume, the first `failures` times after they were told so."""

    failures = 0
    attempts = 0

    def resume(self) -> None:
        self.attempts += 1
        if self.attempts <= self.failures:
            raise OSError("no space left")
        super().resume()


def stuck(broker: BrokerContext, failures: int) -> StuckReplicas:
    """The replicas of a broker, which cannot resume so many times from now on."""
    replicas = cast("StuckReplicas", broker.replicas)
    replicas.attempts, replicas.failures = 0, failures
    return replicas


async def test_replicas_that_cannot_resume_are_tried_again(tmp_path: Path) -> None:
    async with running_parts(tmp_path, make_replicas=StuckReplicas) as broker:
        await with_data(broker)
        replicas = stuck(broker, failures=2)
        broker.metadata.subscribe(Subscriber(1).on_change)
        await make_topic(broker, "other", ready=False)
        await until_led(broker)
        assert replicas.attempts == 3
        assert not broker.membership.fence.is_fenced


async def test_pauses_grow_too_while_replicas_cannot_resume(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Each try registers the broker anew: with short pauses the cluster would elect leaders all the time."""
    monkeypatch.setattr(image_reload, "LONGEST_PAUSE", 30.0)
    caplog.set_level("INFO", "barnabas")
    async with running_parts(tmp_path, make_replicas=StuckReplicas) as broker:
        await with_data(broker)
        stuck(broker, failures=99)
        broker.metadata.subscribe(Subscriber(1).on_change)
        await make_topic(broker, "other", ready=False)

        def pauses() -> list[float]:
            return [float(seconds) for seconds in re.findall(r"applied again in ([\d.]+) s", caplog.text)]

        async with asyncio.timeout(30):
            await until(lambda: len(pauses()) >= 4)
        assert pauses()[:4] == [0.01, 0.02, 0.04, 0.08]


async def test_a_subscriber_that_fails_while_the_registration_is_given_up_is_not_forgotten(tmp_path: Path) -> None:
    given_up: list[str] = []

    class ChangingStore(SqliteStore):
        async def delete(self, path: str, version: int = ANY_VERSION) -> None:
            if not given_up:
                failing.left = 1
                broker.metadata.replace(replace(broker.metadata.image, features_epoch=99))
            given_up.append(path)
            await super().delete(path, version)

    async with running_parts(tmp_path, open_store=lambda _: ChangingStore(tmp_path / "metadata")) as broker:
        await with_data(broker)
        broker.metadata.subscribe((failing := Subscriber(1)).on_change)
        assert not given_up
        await make_topic(broker, "other", ready=False)
        await until_led(broker)
        assert given_up
        assert sum(delta.is_whole for delta in failing.applied) == 2


AFTER = ("a log was created", "a log was set aside", "a log directory takes writes again")


@pytest.mark.parametrize("after", AFTER)
async def test_a_broker_that_cannot_use_a_log_after_a_change_of_it_is_fenced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, after: str
) -> None:
    """That happens in a task, after the subscriber has returned: nobody would lead the partition, or know of it."""
    async with running_parts(tmp_path) as broker:
        if after != AFTER[0]:
            await make_topic(broker, "t")
        method = "_renew" if after == AFTER[2] else "_take"
        do, attempts = getattr(ReplicaManager, method), list[object]()

        def fail_once(replicas: ReplicaManager, *what: Any) -> None:
            attempts.append(what)
            if len(attempts) == 1:
                raise OSError("no space left")
            do(replicas, *what)

        monkeypatch.setattr(ReplicaManager, method, fail_once)
        if after == AFTER[0]:
            await make_topic(broker, "t", ready=False)
        elif after == AFTER[1]:
            broker.replicas.stop("t", 0, broker.replicas.find("t", 0).leader.leader_epoch)
        else:
            monkeypatch.setattr(LogManager, "failed_directories", {"data": "full"})
            monkeypatch.setattr(LogManager, "try_failed_directories", LogManager.logs)
            await broker.replicas.retry_failed()
            assert broker.membership.fence.is_fenced
        await until_led(broker)
        assert "could not apply the metadata image: OSError('no space left')" in caplog.text
        assert not broker.membership.fence.is_fenced


async def test_other_brokers_lead_while_a_broker_cannot_apply_the_image(tmp_path: Path) -> None:
    async with cluster(tmp_path) as nodes:
        controller, member = await nodes.started(0), await nodes.started(1)
        await until(lambda: set(controller.cache.image.brokers) == {0, 1})
        member.cache.replace(controller.cache.image)
        member.cache.subscribe((failing := Subscriber(10**9)).on_change)
        epoch = member.broker_epoch
        member.cache.replace(replace(member.cache.image, features_epoch=99))
        await until(lambda: set(controller.cache.image.brokers) == {0})
        await until(lambda: failing.calls > 3)
        assert set(controller.cache.image.brokers) == {0}
        failing.left = 0
        await until(lambda: set(controller.cache.image.brokers) == {0, 1})
        assert controller.cache.image.brokers[1].epoch == member.broker_epoch > epoch


async def test_a_broker_that_cannot_apply_the_first_image_registers_when_it_has(tmp_path: Path) -> None:
    async with cluster(tmp_path) as nodes:
        member = nodes.member()
        member.cache.subscribe((failing := Subscriber(3)).on_change)
        await member.open()
        await member.start(registration(0))
        assert member.broker_epoch == -1
        assert member.fence.is_fenced
        async with asyncio.timeout(30):
            await member.fence.unfenced()
        assert failing.calls > 3
        assert member.cache.image.brokers[0].epoch == member.broker_epoch
