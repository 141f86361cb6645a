"""What is loaded is kept from the collector only if it is much: what is frozen with it is never collected."""

from __future__ import annotations

import subprocess
import sys

import pytest

from barnabas.broker.collector import MANY_OBJECTS

PROGRAM = """
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


@pytest.mark.parametrize(("count", "is_frozen"), [(MANY_OBJECTS // 2, False), (2 * MANY_OBJECTS, True)])
def test_only_a_large_load_is_frozen(count: int, is_frozen: bool) -> None:
    words = [sys.executable, "-c", PROGRAM.format(count=count)]
    frozen = int(subprocess.run(words, capture_output=True, text=True, check=True).stdout)
    assert (frozen >= count) is is_frozen
    assert is_frozen or frozen <= 0
