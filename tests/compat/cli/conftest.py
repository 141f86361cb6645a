"""The command line as users run it: its own process, words in, lines and an exit code out."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable

import pytest

Cli = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def cli() -> Cli:
    """`cli("topics", "--list")`: runs to its end; the result has returncode, stdout and stderr."""

    def run(*words: object, seconds: float = 120) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "barnabas.cli.main", *map(str, words)]
        return subprocess.run(command, capture_output=True, text=True, timeout=seconds)

    return run
