"""Every order of two threads begins with a copy of a log: in memory that takes half as long."""

from __future__ import annotations

from tests.support.memory import keep_tmp_path_in_memory


def pytest_configure() -> None:
    """Have `tmp_path` made in memory."""
    keep_tmp_path_in_memory()
