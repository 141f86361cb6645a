"""Damaged directories are copied by the hundred: in memory that waits for no disk."""

from __future__ import annotations

from tests.support.memory import keep_tmp_path_in_memory


def pytest_configure() -> None:
    """Have `tmp_path` made in memory."""
    keep_tmp_path_in_memory()
