"""Logs that the tests of storage begin with."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.support.logs import SMALL, new_log

if TYPE_CHECKING:
    from pathlib import Path

    from barnabas.storage.log import Log


@pytest.fixture
def log(tmp_path: Path) -> Log:
    """A new log."""
    return new_log(tmp_path)


@pytest.fixture
def small(tmp_path: Path) -> Log:
    """A new log whose segments are small."""
    return new_log(tmp_path, SMALL)
