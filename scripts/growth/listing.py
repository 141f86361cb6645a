"""Many topics in a listing: the command, and the Metadata answer that it comes from."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

from bench.clients import wire
from scripts.growth import topics, view
from scripts.growth.brokers import Brokers

if TYPE_CHECKING:
    from scripts.growth.tables import Column

_TOPICS_AT_ONCE: Final = 500
_ANSWERS: Final = 20


def measure(folder: Path, count: int, memory: int, column: Column) -> None:
    """Make the topics, and list them."""
    with Brokers(folder, 1, memory) as brokers:
        began = time.perf_counter()
        with brokers.connection() as connection:
            topics.create(connection, [f"listed-{number:06}" for number in range(count)], 1, 1, _TOPICS_AT_ONCE)
        column.note("creation, s", time.perf_counter() - began)
        with brokers.connect() as line:
            frame = view.request(None)
            told = view.ask(line, frame)
            if told.topics != count:
                raise RuntimeError(f"the broker tells of {told.topics:,} topics")
            column.note("Metadata of all, MB", told.size / 1e6)
            used, began = brokers.processor(), time.perf_counter()
            for _ in range(_ANSWERS):
                line.sendall(frame)
                wire.receive(line)
            column.note("Metadata of all, ms", (time.perf_counter() - began) / _ANSWERS * 1e3)
            column.note("Metadata of all, processor ms", (brokers.processor() - used) / _ANSWERS * 1e3)
        _list(brokers, count, column)


def _list(brokers: Brokers, count: int, column: Column) -> None:
    command = [str(Path(sys.executable).parent / "barnabas"), "topics", "--list"]
    command += ["--bootstrap-server", f"127.0.0.1:{brokers.port()}"]
    began, before, used = time.perf_counter(), os.times(), brokers.processor()
    listed = subprocess.run(command, check=True, capture_output=True, text=True, timeout=120).stdout.splitlines()
    after = os.times()
    if len(listed) != count:
        raise RuntimeError(f"the command lists {len(listed):,} topics")
    column.note("barnabas topics --list, s", time.perf_counter() - began)
    spent = after.children_user + after.children_system - before.children_user - before.children_system
    column.note("... processor s of the command", spent)
    column.note("... processor ms of the broker", (brokers.processor() - used) * 1e3)
