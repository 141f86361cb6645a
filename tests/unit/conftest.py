"""Unit tests keep their files in memory: they sync thousands of them, and how long a disk takes says nothing here."""

from __future__ import annotations

from tests.support.memory import keep_tmp_path_in_memory


def pytest_configure() -> None:
    """Have `tmp_path` made in memory."""
    keep_tmp_path_in_memory()
