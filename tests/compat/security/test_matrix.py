"""Every client of the matrix ends every cell as it must; `make matrix` has Spark and franz-go as well."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.matrix.clients import CLIENTS, NOT_IN_CI


@pytest.mark.timeout(400)
def test_the_right_ones_come_in_and_others_are_turned_away() -> None:
    """In a process of its own: kafka-python leaves sockets open when it is turned away."""
    names = [name for name in CLIENTS if name not in NOT_IN_CI]
    words = [sys.executable, "-m", "tests.matrix", *names]
    done = subprocess.run(words, capture_output=True, text=True, timeout=380)
    assert done.returncode == 0, done.stdout + done.stderr[-2000:]
    assert done.stdout.count(" 0 of them wrong") == len(names)
