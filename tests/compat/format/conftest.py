"""A ZooKeeper for the Kafka that serves our directories."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

import pytest

from tests.support.zookeeper import ZooKeeper

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="module")
def zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeper]:
    with ZooKeeper(tmp_path_factory.mktemp("zookeeper")) as server:
        yield server


@pytest.fixture
def chroot(zookeeper: ZooKeeper) -> str:
    return f"{zookeeper.connect}/{uuid.uuid4().hex}"
