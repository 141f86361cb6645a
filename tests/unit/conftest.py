"""Unit tests keep their files in memory: they sync thousands of them, and how long a disk takes says nothing here."""

from __future__ import annotations

import os

from tests.support.memory import parent_in_memory


def pytest_configure() -> None:
    """Have `tmp_path` made in memory, unless whoever runs the tests says where (pytest reads this variable)."""
    if memory := parent_in_memory():
        os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(memory))
