"""A share group on a cluster: its members, and the states of its partitions, outlive the broker that coordinates it."""

from __future__ import annotations

from typing import Any, Final

from barnabas.testing import Broker, Cluster
from tests.support.group_wire import (
    ALTER_SHARE_GROUP_OFFSETS,
    DELETE_GROUPS,
    DESCRIBE_SHARE_GROUP_OFFSETS,
    SHARE_GROUP_HEARTBEAT,
    beating,
)
from tests.support.waiting import wait_until
from tests.support.wire import Connection

CREATE_TOPICS, CREATE_PARTITIONS = 19, 37
GROUP, TOPIC, MEMBER = "workers", "orders", "worker-1"
SETTINGS: Final = {"offsets.topic.num.partitions": 3, "share.coordinator.state.topic.num.partitions": 6}


class Worker:
    """A member that finds its coordinator again when it has lost it."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.coordinator: Broker | None = None
        self._connection: Connection | None = None
        self._epoch = 0
        self.held: set[int] = set()

    def ask(self, key: int, version: int, body: dict[str, Any]) -> Any:
        if self._connection is None:
            self.coordinator = self.cluster.coordinator(GROUP)
            self._connection = Connection(self.coordinator.bootstrap_servers)
        return self._connection.ask(key, version, body)

    def lose(self) -> None:
        if self._connection is not None:
            self._connection.socket.close()
            self._connection = None

    def has(self, count: int) -> bool:
        """Send a heartbeat; whether there are so many partitions."""
        fields = {"subscribed_topic_names": [TOPIC]} if self._epoch == 0 else {}
        try:
            answer = self.ask(SHARE_GROUP_HEARTBEAT, 1, beating(GROUP, MEMBER, self._epoch, **fields))
        except (AssertionError, OSError):
            answer = None
        if answer is None or answer.error_code in (14, 15, 16):
            self.lose()
            return False
        assert answer.error_code == 0, answer
        self._epoch = answer.member_epoch
        if answer.assignment is not None:
            self.held = {index for topic in answer.assignment.topic_partitions for index in topic.partitions}
        return len(self.held) == count

    def offsets(self) -> dict[int, int]:
        """Start offsets of all partitions with state."""
        [group] = self.ask(DESCRIBE_SHARE_GROUP_OFFSETS, 1, {"groups": [{"group_id": GROUP, "topics": None}]}).groups
        assert group.error_code == 0, group
        return {part.partition_index: part.start_offset for topic in group.topics for part in topic.partitions}


def test_a_share_group_goes_on_when_the_broker_that_coordinates_it_is_killed() -> None:
    with Cluster(SETTINGS, brokers=3) as cluster:
        admin = Connection(cluster.brokers[0].bootstrap_servers)
        topic = {"name": TOPIC, "num_partitions": 4, "replication_factor": 3}
        assert admin.ask(CREATE_TOPICS, 7, {"topics": [topic], "timeout": 10_000}).topics[0].error_code == 0
        worker = Worker(cluster)
        wait_until(lambda: worker.has(4), "four partitions")
        assert worker.coordinator is not None
        worker.coordinator.kill()
        worker.lose()
        wait_until(lambda: worker.has(4), "the next coordinator")
        wanted = {"topics": [{"name": TOPIC, "count": 6}], "timeout": 10_000}
        wait_until(lambda: worker.ask(CREATE_PARTITIONS, 3, wanted).results[0].error_code in (0, 37), "six partitions")
        wait_until(lambda: worker.has(6), "six partitions in the group")
        assert worker.ask(SHARE_GROUP_HEARTBEAT, 1, beating(GROUP, MEMBER, -1)).error_code == 0
        starts = [{"partition_index": index, "start_offset": 0} for index in range(6)]
        moved = {"group_id": GROUP, "topics": [{"topic_name": TOPIC, "partitions": starts}]}
        [answer] = worker.ask(ALTER_SHARE_GROUP_OFFSETS, 0, moved).responses
        assert [part.error_code for part in answer.partitions] == [0] * 6
        assert worker.offsets() == dict.fromkeys(range(6), 0)
        [deleted] = worker.ask(DELETE_GROUPS, 2, {"groups_names": [GROUP]}).results
        assert deleted.error_code == 0
        admin.socket.close()
        worker.lose()
