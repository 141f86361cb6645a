"""How a broker registers, again after its session was lost, and when another one has its id."""

from __future__ import annotations

import asyncio
import socket
from dataclasses import replace
from typing import TYPE_CHECKING
from uuid import uuid4

import pytest

from barnabas.broker.controller.connection_probe import ConnectionProbe
from barnabas.broker.controller.membership import MembershipOptions
from barnabas.machines.controller.image import Endpoint
from barnabas.machines.controller.requests import TopicToCreate
from barnabas.metadata.images.announcements import announcements
from barnabas.metadata.membership import DuplicateBroker
from barnabas.metadata.stores.sqlite import SqliteStore
from barnabas.metadata.stores.store import StoreUnavailable
from barnabas.metadata.znodes import BrokerNode, Registration
from barnabas.protocol.messages.inter_broker import UpdateMetadataRequest
from tests.support.controller_shells import cluster, expire, registration
from tests.support.waiting import until

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence
    from pathlib import Path

    from barnabas.broker.controller.membership import ClusterMembership
    from barnabas.metadata.stores.store import Operation, StoredNode
    from barnabas.net.server import Address


def epoch_of(member: ClusterMembership, broker: int) -> int:
    """The epoch by which a member knows a broker, -1 as long as it knows none."""
    known = member.cache.image.brokers.get(broker)
    return -1 if known is None else known.epoch


async def test_a_second_broker_with_the_same_id_is_refused(tmp_path: Path) -> None:
    async with cluster(tmp_path) as nodes:
        await nodes.started(3)
        with pytest.raises(DuplicateBroker, match=r"id 3 is already up at localhost:9095.*another broker.id"):
            await nodes.started(3)


async def test_its_own_stale_registration_is_replaced(tmp_path: Path) -> None:
    async with cluster(tmp_path) as nodes:
        stale = await nodes.store()
        await nodes.member().open()
        killed = registration(0)
        await stale.create(BrokerNode.path(0), BrokerNode.encode(killed, 0), ephemeral=True)
        again = nodes.member()
        await again.start(registration(0), killed.incarnation_id)
        assert again.controller.is_active
        await stale.close()
        assert set(again.cache.image.brokers) == {0}


@pytest.mark.parametrize("everywhere", [True, False])
async def test_a_broker_that_listens_where_its_last_run_was_found_is_not_taken_for_that_one(
    tmp_path: Path, everywhere: bool
) -> None:
    """Its advertised address was changed meanwhile, and the old one leads to it as well."""

    with socket.create_server(("0.0.0.0" if everywhere else "127.0.0.1", 0)) as listening:
        host, port = listening.getsockname()
        async with cluster(tmp_path) as nodes:
            stale = await nodes.store()
            await nodes.member().open()
            killed = replace(registration(0), endpoints={"PLAINTEXT": Endpoint("127.0.0.1", port)})
            await stale.create(BrokerNode.path(0), BrokerNode.encode(killed, 0), ephemeral=True)
            for elsewhere in ([], [(host, port + 1)]):
                with pytest.raises(DuplicateBroker):
                    await nodes.member().start(registration(0), killed.incarnation_id, elsewhere)
            again = nodes.member()
            await again.start(registration(0), killed.incarnation_id, [(host, port)])
            assert again.controller.is_active
            await stale.close()


async def test_a_start_waits_for_another_registration_to_vanish(tmp_path: Path) -> None:
    async with cluster(tmp_path) as nodes:
        first = await nodes.started(0)
        patient = nodes.member(options=MembershipOptions(id_timeout=10))
        starting = asyncio.create_task(patient.start(registration(0)))
        await first.stop()
        await starting
        assert patient.broker_epoch > first.broker_epoch


async def test_registers_again_after_its_session_was_ended(tmp_path: Path) -> None:
    async with cluster(tmp_path) as nodes:
        member = await nodes.started(0)
        await member.controller.create_topics([TopicToCreate("t")])
        epoch = member.broker_epoch
        store = await nodes.store()
        node = await store.get(BrokerNode.path(0))
        expire(nodes.path, node.owner)
        await until(lambda: member.broker_epoch > epoch and member.controller.is_active)
        assert member.cache.image.topics["t"].partitions[0].leader == 0
        await member.controller.create_topics([TopicToCreate("u")])
        await store.close()


async def test_registers_again_when_the_store_comes_back_after_its_session_was_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("barnabas.broker.controller.membership._RETRY_SECONDS", 0.01)

    class Away(SqliteStore):
        async def start(self) -> None:
            raise StoreUnavailable("not yet")

    async with cluster(tmp_path) as nodes:
        stores = iter([SqliteStore(nodes.path), Away(nodes.path), SqliteStore(nodes.path)])
        member = await nodes.started(0, lambda: next(stores))
        epoch = member.broker_epoch
        store = await nodes.store()
        expire(nodes.path, (await store.get(BrokerNode.path(0))).owner)
        await until(lambda: member.broker_epoch > epoch and member.controller.is_active)
        await store.close()


class Taken(SqliteStore):
    """A store before whose session another broker has registered with the id 0, from an address that is not up."""

    async def start(self) -> None:
        self.rival = SqliteStore(self._path)
        await self.rival.start()
        other = Registration(broker_id=0, endpoints={"PLAINTEXT": Endpoint("localhost", 1)}, incarnation_id=uuid4())
        await self.rival.create(BrokerNode.path(0), BrokerNode.encode(other, 0), ephemeral=True)
        await super().start()

    async def close(self) -> None:
        await super().close()
        await self.rival.close()


@pytest.mark.parametrize("id_timeout", [0, 0.2])
async def test_a_broker_whose_id_another_one_has_taken_and_keeps_stops(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, id_timeout: float
) -> None:
    monkeypatch.setattr("barnabas.broker.controller.membership._RETRY_SECONDS", 0.01)

    async with cluster(tmp_path) as nodes:
        stores = iter([first := SqliteStore(nodes.path), Taken(nodes.path)])
        stopping = asyncio.Event()
        options = MembershipOptions(id_timeout=id_timeout, on_duplicate=stopping.set)
        member = await nodes.started(0, lambda: next(stores), options)
        expire(nodes.path, first.session_id)
        await stopping.wait()
        assert isinstance(member.duplicate, DuplicateBroker)
        assert "id 0 is already up at localhost:1" in str(member.duplicate)
        assert not member.controller.is_active


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker tries again to register soon."""
    monkeypatch.setattr("barnabas.broker.controller.membership._RETRY_SECONDS", 0.01)


class Accepted(ConnectionProbe):
    """Whoever has taken the id is up."""

    async def is_accepted(self, endpoint: Endpoint, listening: Collection[Address] = ()) -> bool:
        return True


def with_id_timeout(seconds: float) -> MembershipOptions:
    return MembershipOptions(id_timeout=seconds, probe=Accepted())


@pytest.mark.usefixtures("soon")
async def test_a_broker_whose_id_another_one_answers_for_tries_again_before_it_stops(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with cluster(tmp_path) as nodes:
        stores = iter([first := SqliteStore(nodes.path), taken := Taken(nodes.path)])
        member = await nodes.started(0, lambda: next(stores), with_id_timeout(600))
        epoch = member.broker_epoch
        expire(nodes.path, first.session_id)
        await until(lambda: caplog.text.count("and stops in ") > 1)
        assert member.duplicate is None
        await taken.rival.delete(BrokerNode.path(0))
        await until(lambda: member.broker_epoch > epoch and member.controller.is_active)


@pytest.mark.usefixtures("soon")
async def test_a_store_that_is_slow_uses_up_no_timeout_of_a_broker_whose_id_was_taken(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Even if it is slower than the timeout; when it has reported the other one, that one is gone."""
    timeout = 0.5

    class Slow(Taken):
        async def start(self) -> None:
            await asyncio.sleep(1.1 * timeout)
            await super().start()

        async def find(self, path: str) -> StoredNode | None:
            found = await super().find(path)
            if path == BrokerNode.path(0) and found is not None and found.owner == self.rival.session_id:
                await self.rival.delete(path)
            return found

    async with cluster(tmp_path) as nodes:
        stores = iter([first := SqliteStore(nodes.path), Slow(nodes.path)])
        member = await nodes.started(0, lambda: next(stores), with_id_timeout(timeout))
        epoch = member.broker_epoch
        expire(nodes.path, first.session_id)
        await until(lambda: member.broker_epoch > epoch and member.controller.is_active)
        assert member.duplicate is None
        assert "and stops in " in caplog.text


async def test_registers_again_after_its_registration_was_removed(tmp_path: Path) -> None:
    async with cluster(tmp_path) as nodes:
        member = await nodes.started(0)
        epoch = member.broker_epoch
        store = await nodes.store()
        await store.delete(BrokerNode.path(0))
        await until(lambda: member.broker_epoch > epoch)
        await until(lambda: epoch_of(member, 0) == member.broker_epoch)
        await store.close()


async def test_a_registration_whose_answer_got_lost_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("barnabas.broker.controller.membership._RETRY_SECONDS", 0.01)

    class Lossy(SqliteStore):
        """The connection may break before the answer to a registration; nothing is found then until it is back."""

        breaks = False

        def __init__(self, path: Path) -> None:
            super().__init__(path)
            self.back = asyncio.Event()
            self.back.set()

        async def multi(self, operations: Sequence[Operation]) -> None:
            await super().multi(operations)
            if self.breaks and any(each.path == BrokerNode.path(1) for each in operations):
                self.breaks = False
                self.back.clear()
                raise StoreUnavailable("the connection broke")

        async def find(self, path: str) -> StoredNode | None:
            await self.back.wait()
            return await super().find(path)

    async with cluster(tmp_path) as nodes:
        controller = await nodes.started(0)
        lossy = Lossy(nodes.path)
        member = await nodes.started(1, lambda: lossy)
        first = member.broker_epoch
        lossy.breaks = True
        store = await nodes.store()
        await store.delete(BrokerNode.path(1))
        await until(lambda: epoch_of(controller, 1) > first)
        assert member.broker_epoch == first
        for message in announcements(None, controller.cache.image, controller.cache.image.brokers[1]):
            if isinstance(message, UpdateMetadataRequest):
                await member.update_metadata(message)
        await member.fence.unfenced()
        lossy.back.set()
        await until(lambda: member.broker_epoch == epoch_of(controller, 1))
        async with asyncio.timeout(30):
            await member.fence.unfenced()  # although it is sent nothing more
        await store.close()
