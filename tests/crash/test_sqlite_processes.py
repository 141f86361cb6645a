"""Processes that share the embedded metadata store: they die, hang, or open a new file all at once."""

from __future__ import annotations

import asyncio
import shutil
import signal
import sys
import textwrap
from typing import TYPE_CHECKING

import pytest

from barnabas.metadata.stores.sqlite import SqliteStore
from barnabas.metadata.stores.store import Create, NodeExists
from tests.support.processes import Process

if TYPE_CHECKING:
    from pathlib import Path

_HOLDER = textwrap.dedent("""
    import asyncio, sys
    from barnabas.metadata.stores.sqlite import SqliteStore
    from barnabas.metadata.stores.store import SessionExpired

    async def main() -> None:
        store = SqliteStore(sys.argv[1], session_timeout=float(sys.argv[2]))
        await store.start()
        expired = asyncio.Event()
        store.on_expiry(expired.set)
        await store.create("/held", b"by the other process", ephemeral=True)
        print("holding", flush=True)
        await expired.wait()
        try:
            await store.create("/too-late")
        except SessionExpired:
            print("gave up", flush=True)
        await store.close()

    asyncio.run(main())
""")


def holder(path: Path, session_timeout: float) -> Process:
    """Another process that holds an ephemeral node."""
    log = path.with_name("holder.log")
    process = Process("holder", [sys.executable, "-c", _HOLDER, str(path), str(session_timeout)], log)
    process.wait_for_output("holding")
    return process


async def _gone(store: SqliteStore) -> None:
    """Wait until the held node is gone."""
    changed = asyncio.Event()
    watch = store.watch("/held", changed.set)
    async with asyncio.timeout(30):
        while await store.find("/held"):
            await changed.wait()
            changed.clear()
    watch.cancel()


async def test_an_ephemeral_node_dies_with_its_process_and_sooner_than_its_lease(tmp_path: Path) -> None:
    path = tmp_path / "metadata.db"

    with holder(path, session_timeout=600) as process:
        store = SqliteStore(path)
        await store.start()
        assert (await store.get("/held")).data == b"by the other process"
        with pytest.raises(NodeExists):
            await store.create("/held", ephemeral=True)
        process.kill()
        await _gone(store)
        await store.close()


async def test_nothing_of_a_killed_process_is_in_the_way_of_the_next(tmp_path: Path) -> None:
    path = tmp_path / "metadata.db"

    store = SqliteStore(path)
    await store.start()
    with holder(path, session_timeout=600) as process:
        process.kill()
    shutil.copytree(tmp_path, tmp_path / "copy", ignore=shutil.ignore_patterns("copy"))
    await store.multi([Create("/held", b"mine", ephemeral=True)])
    assert (await store.get("/held")).owner == store.session_id
    await store.close()

    restarted = SqliteStore(tmp_path / "copy" / "metadata.db")
    await restarted.start()
    assert await restarted.find("/held") is None
    await restarted.close()


async def test_a_process_that_hangs_loses_its_session_and_learns_of_it(tmp_path: Path) -> None:
    path = tmp_path / "metadata.db"

    with holder(path, session_timeout=0.5) as process:
        store = SqliteStore(path, session_timeout=0.5)
        await store.start()
        process.send(signal.SIGSTOP)
        await _gone(store)
        process.send(signal.SIGCONT)
        process.wait_for_output("gave up")
        assert await store.find("/too-late") is None
        await store.close()


async def test_many_processes_may_open_a_new_file_at_once(tmp_path: Path) -> None:
    script = textwrap.dedent("""
        import asyncio, sys
        from barnabas.metadata.stores.sqlite import SqliteStore

        async def main() -> None:
            store = SqliteStore(sys.argv[1])
            await store.start()
            for number in range(20):
                await store.create(f"/{sys.argv[2]}-{number}", ephemeral=True)
                await store.create(f"/kept-{sys.argv[2]}-{number}")
            await store.close()

        asyncio.run(main())
    """)
    path = tmp_path / "new" / "metadata.db"
    processes = [
        Process(f"writer {n}", [sys.executable, "-c", script, str(path), str(n)], tmp_path / f"{n}.log")
        for n in range(3)
    ]
    for process in processes:
        assert process.wait() == 0, process.tail()

    store = SqliteStore(path)
    await store.start()
    assert len(await store.children("/")) == 60
    assert len({node.czxid for node in await store.subtree("/")}) == 60
    await store.close()
