"""One ZooKeeper for all tests here; each test works below a path of its own."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

import pytest

from tests.support.zookeeper import ZooKeeper

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="session")
def zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeper]:
    with ZooKeeper(tmp_path_factory.mktemp("zookeeper"), users={"broker": "secret"}) as server:
        yield server


@pytest.fixture
def chroot(zookeeper: ZooKeeper) -> str:
    """A connect string with a path that nobody else uses and that is not there yet."""
    return f"{zookeeper.connect}/tests/{uuid.uuid4().hex}"
