"""A ZooKeeper that a command reads from or writes to."""

from __future__ import annotations

import logging
from importlib.util import find_spec
from typing import TYPE_CHECKING

from barnabas.cli.common.failures import Failed

if TYPE_CHECKING:
    from barnabas.metadata.stores.store import MetadataStore

CONNECT_SECONDS = 5.0


def open_zookeeper(hosts: str) -> MetadataStore:
    """A ZooKeeper that has some seconds to take the connection. Raises Failed without kazoo."""
    if find_spec("kazoo") is None:
        raise Failed("This needs kazoo, which is not installed. Install it with: pip install 'kazoo[sasl]'")
    from barnabas.metadata.stores.zookeeper import ZooKeeperStore

    logging.getLogger("kazoo").setLevel(logging.CRITICAL)  # it logs every attempt; the command tells the outcome
    return ZooKeeperStore(hosts, connect_timeout=CONNECT_SECONDS)
