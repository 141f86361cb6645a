"""What the tests of servers begin with."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

from tests.support.servers import DefaultSides, TlsSides

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="session")
def tls_sides() -> TlsSides:
    """Certificates of both ends."""
    return TlsSides.made()


@pytest.fixture(params=["plaintext", "tls"])
def transport(request: pytest.FixtureRequest, tls_sides: TlsSides, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets the servers of a test, and their clients, use TLS or not."""
    monkeypatch.setattr(DefaultSides, "value", tls_sides if request.param == "tls" else None)


@pytest.fixture
def executor() -> Iterator[ThreadPoolExecutor]:
    """What a server reads files with."""
    with ThreadPoolExecutor(1) as pool:
        yield pool
