"""What the tests of servers begin with."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def executor() -> Iterator[ThreadPoolExecutor]:
    """What a server reads files with."""
    with ThreadPoolExecutor(1) as pool:
        yield pool
