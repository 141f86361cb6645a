"""Memory that goes back to the system when many connections have ended."""

from __future__ import annotations

import asyncio
import ctypes
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from barnabas.net import freed_memory
from barnabas.net.freed_memory import MANY, FreedMemory, give_back
from tests.support.waiting import until

if TYPE_CHECKING:
    from concurrent.futures import ThreadPoolExecutor


async def test_it_is_asked_once_for_many_connections(
    monkeypatch: pytest.MonkeyPatch, executor: ThreadPoolExecutor
) -> None:
    asked: list[None] = []
    monkeypatch.setattr(freed_memory, "PAUSE_SECONDS", 0.01)
    monkeypatch.setattr(freed_memory, "give_back", lambda: asked.append(None))
    freed = FreedMemory(asyncio.get_running_loop(), executor)
    for _ in range(3 * MANY - 1):
        freed.note()
    await until(lambda: len(asked) == 1)
    for _ in range(MANY - 1):
        freed.note()
    await asyncio.sleep(0.05)
    assert len(asked) == 1
    freed.note()
    await until(lambda: len(asked) == 2)


def test_much_free_memory_goes_back() -> None:
    library = ctypes.CDLL(None)
    if not hasattr(library, "mallinfo2"):
        pytest.skip("it needs glibc 2.33")
    give_back()
    pieces = [b"x" * 50_000 for _ in range(3000)]  # not one by one from the system, as larger ones are
    kept = pieces[::100]
    before = _resident()
    del pieces
    assert give_back()
    assert before - _resident() > 100_000_000
    assert len(kept) == 30


def _resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096
