"""Every client of the matrix ends every cell as it must; `make matrix` has franz-go as well, which needs Go."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.matrix.clients import CLIENTS, NEEDS_GO


@pytest.mark.timeout(400)
def test_the_right_ones_come_in_and_others_are_turned_away() -> None:
    """In a process of its own: kafka-python leaves sockets open when it is turned away."""
    names = [name for name in CLIENTS if name != NEEDS_GO]
    words = [sys.executable, "-m", "tests.matrix", *names]
    done = subprocess.run(words, capture_output=True, text=True, timeout=380)
    assert done.returncode == 0, done.stdout + done.stderr[-2000:]
    assert done.stdout.count(" 0 of them wrong") == len(names)
