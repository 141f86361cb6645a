"""Who may change the states of a queue: brokers, and whom an authorizer lets act for the cluster, but no stranger.

The stranger speaks to a broker with default settings over its listener for clients, and names the highest epochs that
there are, or none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pytest

from barnabas.clients import Producer, Queue
from barnabas.clients.admin.cluster_admin import ClusterAdmin
from barnabas.model.ids import TopicPartition
from tests.support.broker_handshake import introduce
from tests.support.clusters import Cluster
from tests.support.group_wire import (
    DELETE_SHARE_GROUP_STATE,
    INITIALIZE_SHARE_GROUP_STATE,
    NEWEST,
    READ_SHARE_GROUP_STATE,
    READ_SHARE_GROUP_STATE_SUMMARY,
    WRITE_SHARE_GROUP_STATE,
)
from tests.support.waiting import wait_until
from tests.support.wire import Connection

if TYPE_CHECKING:
    from collections.abc import Iterator

    from barnabas.clients.queue.message import QueueMessage

FEW: Final = {"offsets.topic.num.partitions": "1", "share.coordinator.state.topic.num.partitions": "1"}
HIGHEST: Final = 0x7FFFFFFF
ALLOWED, REFUSED = 0, 31
MESSAGES: Final = 10
DONE: Final = 4
"""Messages that are done before the stranger comes."""


class Attack(NamedTuple):
    """What a stranger asks for."""

    api: int
    part: dict[str, Any]


ATTACKS: Final = {
    "a leader of the highest epoch reads": Attack(READ_SHARE_GROUP_STATE, {"leader_epoch": HIGHEST}),
    "a write without epochs": Attack(
        WRITE_SHARE_GROUP_STATE, {"state_epoch": -1, "leader_epoch": -1, "start_offset": 1000}
    ),
    "a write of the highest epochs": Attack(
        WRITE_SHARE_GROUP_STATE, {"state_epoch": HIGHEST, "leader_epoch": HIGHEST, "start_offset": 1000}
    ),
    "a state of the highest epoch": Attack(
        INITIALIZE_SHARE_GROUP_STATE, {"state_epoch": HIGHEST, "start_offset": 1000}
    ),
    "the state is deleted": Attack(DELETE_SHARE_GROUP_STATE, {}),
}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Cluster(tmp_path_factory.mktemp("queues"), 1, FEW) as cluster:
        yield cluster


def begin(cluster: Cluster, topic: str) -> None:
    """Send messages, and have a worker be done with the first ones."""
    cluster.create(topic, 1, 1)
    with Producer(cluster.bootstrap) as producer:
        for number in range(MESSAGES):
            producer.send(topic, str(number).encode())
    with Queue(cluster.bootstrap, topic, topic, prefetch=1) as queue:
        for number in range(DONE):
            message = next_of(queue)
            assert message.record.offset == number
            message.done().result(30)


def next_of(queue: Queue[Any, Any]) -> QueueMessage[Any, Any]:
    return wait_until(lambda: queue.get(1.0), "a message")


def ask(connection: Connection, cluster: Cluster, topic: str, attack: Attack) -> int:
    """The error of the only partition."""
    topics = [{"topic_id": topic_id_of(cluster, topic), "partitions": [{"partition": 0, **attack.part}]}]
    answer = connection.ask(attack.api, NEWEST[attack.api], {"group_id": topic, "topics": topics})
    [[part]] = [topic.partitions for topic in answer.results]
    return int(part.error_code)


def topic_id_of(cluster: Cluster, topic: str) -> Any:
    with Connection(cluster.address(1)) as wire:
        [described] = wire.ask(3, 12, {"topics": [{"name": topic}]}).topics
    return described.topic_id


def work(cluster: Cluster, topic: str) -> list[int]:
    """What a worker of the group is given, until nothing is left to do."""
    seen: list[int] = []
    with Queue(cluster.bootstrap, topic, topic) as queue:
        while len(seen) < MESSAGES - DONE:
            message = next_of(queue)
            seen.append(message.record.offset)
            message.done().result(30)
        assert queue.get(0.5) is None
    return seen


@pytest.mark.parametrize("name", ATTACKS)
def test_a_stranger_stops_no_queue_and_skips_no_message(cluster: Cluster, name: str) -> None:
    topic = f"jobs-{list(ATTACKS).index(name)}"
    begin(cluster, topic)
    with Connection(cluster.address(1)) as stranger:
        error = ask(stranger, cluster, topic, ATTACKS[name])
    cluster.nodes[1].kill()
    cluster.start(1)
    assert work(cluster, topic) == list(range(DONE, MESSAGES))
    assert error == REFUSED


def test_a_stranger_may_look_at_a_queue(cluster: Cluster) -> None:
    """`barnabas share-groups --describe --in-flight` does."""
    begin(cluster, "seen")
    with Connection(cluster.address(1)) as stranger:
        for api in (READ_SHARE_GROUP_STATE_SUMMARY, READ_SHARE_GROUP_STATE):
            assert ask(stranger, cluster, "seen", Attack(api, {"leader_epoch": 0})) == ALLOWED
    with ClusterAdmin(cluster.bootstrap, {}) as admin:
        place = TopicPartition("seen", 0)
        known = admin.share_groups.offsets(["seen"])["seen"][place]
        assert known is not None
        assert known.start == DONE
        assert place in admin.share_groups.in_flight("seen")
    assert work(cluster, "seen") == list(range(DONE, MESSAGES))


@pytest.mark.parametrize("name", ATTACKS)
def test_a_broker_of_the_cluster_is_allowed_what_a_stranger_is_not(cluster: Cluster, name: str) -> None:
    topic = f"trusted-{list(ATTACKS).index(name)}"
    begin(cluster, topic)
    with Connection(cluster.address(1)) as broker:
        introduce(broker, cluster.folder / "metadata", 2, 1)
        assert ask(broker, cluster, topic, ATTACKS[name]) == ALLOWED
