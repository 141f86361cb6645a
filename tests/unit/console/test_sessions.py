"""Logins to the console: those who begin them without end keep nobody else out."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import anyio
import anyio.to_thread
import pytest

from barnabas.console.sessions import LOGINS_AT_ONCE, NoLoginAsked, Sessions, TooManyLogins
from barnabas.console.settings import ConsoleSettings

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def sessions(tmp_path: Path) -> Iterator[Sessions]:
    sessions = Sessions(
        ConsoleSettings(bootstrap_servers="127.0.0.1:1", host="x", port=1, folder=tmp_path, read_only=False)
    )
    yield sessions
    sessions.close()


def test_beginnings_of_logins_have_turns_as_logins_have(sessions: Sessions) -> None:
    """Without a login anybody could begin one: forty that waited for the provider took all threads of the console."""

    answered, waiting = threading.Event(), threading.Semaphore(0)
    refused = list[str]()

    def begin() -> None:
        waiting.release()
        answered.wait(30)

    async def attempt(address: str) -> None:
        try:
            await sessions.begin_with(begin, address)
        except TooManyLogins:
            refused.append(address)

    async def run() -> None:
        async with anyio.create_task_group() as tasks:
            for number in range(60):
                tasks.start_soon(attempt, f"10.0.0.{number % 20}")
            try:
                for _ in range(LOGINS_AT_ONCE):
                    assert await anyio.to_thread.run_sync(waiting.acquire, True, 20)
                with anyio.fail_after(20), pytest.raises(NoLoginAsked):  # a login by password has its own turn
                    await sessions.log_in("alice", "x", "10.0.1.1")
                assert len(set(refused)) == len(refused) == 20, "each address has two"
                assert not waiting.acquire(blocking=False), "no more than have a turn"
            finally:
                answered.set()

    anyio.run(run)
