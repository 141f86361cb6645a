"""The collector never looks at much at once: what is loaded or stays is frozen, and what is garbage is not."""

from __future__ import annotations

import subprocess
import sys

import pytest

from barnabas.broker.collector import MANY_OBJECTS

LOADED = """
import gc
from barnabas.broker import collector
collector.tune_process()
before = gc.get_freeze_count()
with collector.loading():
    assert not gc.isenabled()
    loaded = [[] for _ in range({count})]
assert gc.isenabled()
print(gc.get_freeze_count() - before)
"""

KEPT = """
import gc
from barnabas.broker import collector
collector.tune_process()
looked_at = [0]
gc.callbacks.append(lambda phase, info: phase == "start" and looked_at.append(len(gc.get_objects())))
kept = [[] for _ in range({count})]
print(max(looked_at), gc.get_freeze_count())
"""

DROPPED = """
import gc
from barnabas.broker import collector
collector.tune_process()
before = gc.get_freeze_count()
for _ in range({count}):
    cycle = []
    cycle.append(cycle)
gc.collect()
print(gc.get_freeze_count() - before)
"""

MOST = 180_000
"""Objects that a collection may look at: some 50 ms."""


def numbers(program: str, count: int) -> list[int]:
    """What a program prints in a process of its own."""
    words = [sys.executable, "-c", program.format(count=count)]
    return [int(each) for each in subprocess.run(words, capture_output=True, text=True, check=True).stdout.split()]


@pytest.mark.parametrize(("count", "is_frozen"), [(MANY_OBJECTS // 2, False), (2 * MANY_OBJECTS, True)])
def test_only_a_large_load_is_frozen(count: int, is_frozen: bool) -> None:
    (frozen,) = numbers(LOADED, count)
    assert (frozen >= count) is is_frozen
    assert is_frozen or frozen <= 0


def test_a_collection_does_not_look_at_all_that_was_made_and_stays() -> None:
    looked_at, frozen = numbers(KEPT, 4 * MOST)
    assert looked_at <= MOST
    assert frozen > 3 * MOST


def test_garbage_is_freed_and_not_frozen() -> None:
    (frozen,) = numbers(DROPPED, 2 * MANY_OBJECTS)
    assert frozen < 5_000
