"""Directories in memory, where the system has such: tests that make thousands of files wait for no disk."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Final

MEMORY: Final = Path("/dev/shm")
ENOUGH: Final = 1 << 30
"""Containers often have 64 MB there, which is too little."""


def parent_in_memory() -> Path | None:
    """Where directories in memory can be made; None where the system has none, or one that is too small."""
    if os.access(MEMORY, os.W_OK) and shutil.disk_usage(MEMORY).free > ENOUGH:
        return MEMORY
    return None


def keep_tmp_path_in_memory() -> None:
    """Have pytest make `tmp_path` in memory, unless whoever runs the tests says where (it reads this variable)."""
    if memory := parent_in_memory():
        os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(memory))
