"""Whichever call to the file system fails, nothing acknowledged is lost by it, and it is served again after that.

Some of the calls; `make failing-calls` tries all of them.

The tool itself is on trial, too: defects that were found in this code before are put back, and it finds them.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from tests.failing_calls import broker_stories, log_stories
from tests.failing_calls.all_stories import tellers
from tests.failing_calls.bugs import BUGS, Bug, find
from tests.failing_calls.files import Fault
from tests.failing_calls.story import BrokenRule, Case, Ending, Told, tell_all

if TYPE_CHECKING:
    from collections.abc import Iterator

STEP: Final = 29
"""Between the calls of a story of logs that are tried here."""
MOST: Final = 3
"""How many of them are tried with each fault."""


@pytest.fixture
def disk() -> Iterator[Path]:
    """A directory in memory, where the system has such: these tests make many thousand files."""
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if os.access(memory, os.W_OK) else None) as path:
        yield Path(path)


@pytest.mark.parametrize("name", log_stories.STORIES)
def test_a_log_outlives_any_call_that_fails(disk: Path, name: str) -> None:
    first = list(log_stories.STORIES).index(name)
    told = [
        tell_all(tellers(disk)[name], fault, step=STEP, first=(first + number) % 3, most=MOST)
        for number, fault in enumerate(Fault)
    ]
    assert sum(told) > 4


@pytest.mark.parametrize("name", broker_stories.STORIES)
def test_a_broker_outlives_any_call_that_fails(disk: Path, name: str) -> None:
    first = list(broker_stories.STORIES).index(name)
    faults = [Fault.BAD_DISK] if broker_stories.STORIES[name].workers else list(Fault)  # a queue takes long
    told = [
        tell_all(tellers(disk)[name], fault, step=STEP, first=2 * first + number, most=1)
        for number, fault in enumerate(faults)
    ]
    assert sum(told) > len(faults) // 4


def test_a_story_that_breaks_without_its_fault_ends() -> None:
    told: list[BrokenRule] = []

    def teller(case: Case) -> Told:
        raise BrokenRule("it always breaks", "a call" if case.number < 3 else "")

    assert tell_all(teller, Fault.NO_ROOM, ending=Ending.GO_ON, misses=2, on_broken=told.append) == 3
    assert len(told) == 5


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: f"{bug.name}, {bug.fault.name}")
def test_a_defect_is_found(disk: Path, monkeypatch: pytest.MonkeyPatch, bug: Bug) -> None:
    bug.plant(monkeypatch)
    assert find(tellers(disk)[bug.story], bug, bug.first) is not None
