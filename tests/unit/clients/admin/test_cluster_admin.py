"""One door for tools: connections are opened when they are needed, and all take the same properties."""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest

from barnabas.clients.admin.cluster_admin import ClusterAdmin
from barnabas.clients.errors import BrokerUnreachable, InvalidClientConfig
from barnabas.clients.wire import topic_list
from barnabas.clients.wire.topic_list import ListedTopic
from tests.support.processes import free_port

if TYPE_CHECKING:
    from collections.abc import Callable

NOWHERE = "127.0.0.1:1"
AREAS: list[Callable[[ClusterAdmin], Any]] = [
    lambda cluster: cluster.topics,
    lambda cluster: cluster.groups,
    lambda cluster: cluster.configs,
    lambda cluster: cluster.transactions,
    lambda cluster: cluster.brokers,
]


def test_nothing_is_opened_before_it_is_needed() -> None:
    with ClusterAdmin(NOWHERE, {"no.such.property": "1"}):
        pass


@pytest.mark.parametrize("area", AREAS)
def test_every_area_refuses_a_misspelt_property(area: Callable[[ClusterAdmin], Any]) -> None:
    """One about security above all: without it the connection would be less safe than the file asks for."""
    with (
        ClusterAdmin(NOWHERE, {"secruity.protocol": "ssl"}) as cluster,
        pytest.raises(InvalidClientConfig, match="secruity"),
    ):
        area(cluster)


@pytest.mark.parametrize("area", AREAS)
def test_every_area_says_where_no_broker_answers(area: Callable[[ClusterAdmin], Any]) -> None:
    address = f"127.0.0.1:{free_port()}"
    with ClusterAdmin(address) as cluster, pytest.raises(BrokerUnreachable, match=f"no broker answers at {address}"):
        area(cluster)


def test_topics_are_listed_in_the_quick_way_only_without_properties(monkeypatch: pytest.MonkeyPatch) -> None:
    found = [ListedTopic("a", 1, 1)]
    monkeypatch.setattr(topic_list, "list_topics", lambda *_: found)
    with ClusterAdmin(NOWHERE) as cluster:
        assert cluster.list_topics() == found
    with ClusterAdmin(NOWHERE, {"secruity.protocol": "ssl"}) as cluster, pytest.raises(InvalidClientConfig):
        cluster.list_topics()


def test_the_door_and_the_list_of_topics_import_neither_kio_nor_librdkafka() -> None:
    line = (
        "import sys\n"
        "from barnabas.clients.admin.cluster_admin import ClusterAdmin\n"
        "from barnabas.clients.wire import topic_list\n"
        "topic_list.list_topics = lambda *_: []\n"
        "assert ClusterAdmin('localhost:1').list_topics() == []\n"
        "assert not {'kio', 'confluent_kafka'} & sys.modules.keys()\n"
    )
    subprocess.run([sys.executable, "-c", line], check=True)


def test_one_that_waits_for_its_broker_keeps_no_other_waiting() -> None:
    """functools.cached_property has one lock for all instances in Python 3.11, which was held meanwhile."""
    with socket.create_server(("127.0.0.1", 0)) as mute:
        slow = ClusterAdmin(f"127.0.0.1:{mute.getsockname()[1]}", timeout=20)

        def wait() -> None:
            with suppress(BrokerUnreachable):
                _ = slow.brokers

        waiting = threading.Thread(target=wait)
        waiting.start()
        connection, _ = mute.accept()  # from here on it waits
        began = time.monotonic()
        with ClusterAdmin(f"127.0.0.1:{free_port()}") as other, pytest.raises(BrokerUnreachable):
            _ = other.brokers
        assert time.monotonic() - began < 10
        connection.close()
        waiting.join()
