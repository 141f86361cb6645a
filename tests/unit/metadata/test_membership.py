"""Who may register under an id that is taken."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING
from uuid import UUID

import pytest

from barnabas.machines.controller.image import Endpoint
from barnabas.metadata.election import campaign
from barnabas.metadata.layout import lay_out
from barnabas.metadata.membership import DuplicateBroker, register, remove
from barnabas.metadata.stores.sqlite import SqliteStore
from barnabas.metadata.znodes import BrokerNode, ControllerNode, KnownBrokerNode, Registration

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence
    from pathlib import Path

    from barnabas.metadata.stores.store import Operation, StoredNode, Watch

pytestmark = pytest.mark.slow

NOW = 1_700_000_000_000
HERE, THERE = Endpoint("here", 1), Endpoint("there", 2)


def registration(endpoint: Endpoint) -> Registration:
    return Registration(broker_id=1, endpoints={"PLAINTEXT": endpoint}, incarnation_id=UUID(int=endpoint.port))


async def answers(endpoint: Endpoint) -> bool:
    return True


async def no_answer(endpoint: Endpoint) -> bool:
    return False


async def stores(folder: Path) -> tuple[SqliteStore, SqliteStore]:
    first, second = SqliteStore(folder / "metadata"), SqliteStore(folder / "metadata")
    await first.start()
    await second.start()
    await lay_out(first, lambda: UUID(int=9))
    return first, second


async def test_a_broker_whose_id_belongs_to_one_that_answers_is_refused_at_once(tmp_path: Path) -> None:
    first, second = await stores(tmp_path)
    await register(first, registration(THERE), NOW)
    with pytest.raises(DuplicateBroker, match="already up at there:2"):
        async with asyncio.timeout(30):
            await register(second, registration(HERE), NOW, id_timeout=3600, answers=answers)
    await first.close()
    await second.close()


async def test_a_copy_of_a_living_brokers_directory_does_not_replace_it(tmp_path: Path) -> None:
    first, second = await stores(tmp_path)
    alive = registration(THERE)
    await register(first, alive, NOW)
    with pytest.raises(DuplicateBroker, match="already up at there:2"):
        await register(
            second, registration(HERE), NOW, previous_incarnation=alive.incarnation_id, id_timeout=3600, answers=answers
        )
    node = await first.find(BrokerNode.path(1))
    assert node is not None
    assert node.owner == first.session_id
    await register(second, registration(HERE), NOW, previous_incarnation=alive.incarnation_id, answers=no_answer)
    await first.close()
    await second.close()


async def test_one_that_does_not_answer_may_be_about_to_vanish(tmp_path: Path) -> None:
    first, second = await stores(tmp_path)
    await register(first, registration(THERE), NOW)
    waiting = asyncio.create_task(register(second, registration(HERE), NOW, id_timeout=3600, answers=no_answer))
    await asyncio.sleep(0)
    await first.close()
    async with asyncio.timeout(30):
        assert await waiting > 0
    await second.close()


class Deaf(SqliteStore):
    """A store whose watches never fire."""

    def watch(self, path: str, callback: Callable[[], None]) -> Watch:
        return super().watch(path, lambda: None)


async def test_the_timeout_begins_when_another_one_is_found_and_ends_with_another_look(tmp_path: Path) -> None:
    """The store takes longer than the timeout to say that the id is taken, and then it is not any more."""
    timeout = 0.1

    class Slow(Deaf):
        async def multi(self, operations: Sequence[Operation]) -> None:
            await asyncio.sleep(2 * timeout)
            await super().multi(operations)

        async def find(self, path: str) -> StoredNode | None:
            found = await super().find(path)
            if path == BrokerNode.path(1):
                await first.close()
            return found

    first, second = (await stores(tmp_path))[0], Slow(tmp_path / "metadata")
    await second.start()
    await register(first, registration(THERE), NOW)
    assert await register(second, registration(HERE), NOW, id_timeout=timeout, answers=no_answer) > 0
    await second.close()


async def test_another_one_is_looked_for_long_before_the_timeout_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("barnabas.metadata.membership._LOOK_SECONDS", 0.01)
    looks = 0

    class GoneAtTheThirdLook(Deaf):
        async def find(self, path: str) -> StoredNode | None:
            nonlocal looks
            looks += path == BrokerNode.path(1)
            if looks == 3 and path == BrokerNode.path(1):
                await first.close()
            return await super().find(path)

    first, second = (await stores(tmp_path))[0], GoneAtTheThirdLook(tmp_path / "metadata")
    await second.start()
    await register(first, registration(THERE), NOW)
    async with asyncio.timeout(30):
        assert await register(second, registration(HERE), NOW, id_timeout=3600, answers=no_answer) > 0
    await second.close()


async def test_time_in_which_the_store_is_away_uses_up_no_timeout(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is away while another one is waited for. When it is back, that one is still there, and soon it is gone."""
    timeout = 0.5
    monkeypatch.setattr("barnabas.metadata.membership._LOOK_SECONDS", 0.01)
    looks = 0

    class Away(Deaf):
        async def find(self, path: str) -> StoredNode | None:
            nonlocal looks
            looks += path == BrokerNode.path(1)
            second_look = looks == 2 and path == BrokerNode.path(1)
            if second_look:
                await asyncio.sleep(1.1 * timeout)
            found = await super().find(path)
            if second_look:
                await first.close()
            return found

    first, second = (await stores(tmp_path))[0], Away(tmp_path / "metadata")
    await second.start()
    await register(first, registration(THERE), NOW)
    assert await register(second, registration(HERE), NOW, id_timeout=timeout, answers=no_answer) > 0
    await second.close()


async def test_an_answer_at_our_own_address_says_nothing(tmp_path: Path) -> None:
    first, second = await stores(tmp_path)
    await register(first, registration(HERE), NOW)
    started = time.monotonic()
    with pytest.raises(DuplicateBroker):
        await register(second, registration(HERE), NOW, id_timeout=0.1, answers=answers)
    assert time.monotonic() - started >= 0.1
    await first.close()
    await second.close()


class Interrupted(SqliteStore):
    """A store with another broker that does something right before the next transaction of this one."""

    meanwhile: Callable[[], Awaitable[object]] | None = None

    async def multi(self, operations: Sequence[Operation]) -> None:
        if self.meanwhile is not None:
            meanwhile, self.meanwhile = self.meanwhile, None
            await meanwhile()
        await super().multi(operations)


async def test_a_registration_that_was_made_anew_is_not_removed_for_the_one_before_it(tmp_path: Path) -> None:
    """Both have version 0; what differs is the record, which each registration writes."""
    dead, anew = await stores(tmp_path)
    store = Interrupted(tmp_path / "metadata")
    await store.start()
    await register(dead, registration(HERE), NOW)
    found = await store.find(BrokerNode.path(1))
    assert found is not None

    async def restart() -> None:
        await dead.close()
        await register(anew, registration(HERE), NOW)

    store.meanwhile = restart
    await remove(store, 1, found)
    node = await store.find(BrokerNode.path(1))
    assert node is not None and node.owner == anew.session_id
    await remove(store, 1, node)
    assert await store.find(BrokerNode.path(1)) is None
    assert await store.find(KnownBrokerNode.path(1)) is not None, "the broker is away, and not forgotten"
    await anew.close()
    await store.close()


async def test_an_office_that_another_broker_has_taken_is_not_vacated_for_the_dead_one(tmp_path: Path) -> None:
    dead, other = await stores(tmp_path)
    store = Interrupted(tmp_path / "metadata")
    await store.start()
    await register(dead, registration(HERE), NOW)
    await campaign(dead, 1, NOW)
    found = await store.find(BrokerNode.path(1))
    assert found is not None

    async def elected() -> None:
        """The first transaction removes the registration; the second is the one that is looked at."""

        async def taken() -> None:
            await dead.close()
            assert await campaign(other, 2, NOW) is not None

        store.meanwhile = taken

    store.meanwhile = elected
    await remove(store, 1, found)
    node = await store.find(ControllerNode.path)
    assert node is not None and node.owner == other.session_id
    await other.close()
    await store.close()
