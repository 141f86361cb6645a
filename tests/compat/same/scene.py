"""One broker of the two that are compared, the topics made on it, and answers in a form that can be compared."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import Any, Final

from tests.support.broker_handshake import introduce
from tests.support.waiting import wait_until
from tests.support.wire import Connection, batch, plain

PRODUCE, FETCH, LIST_OFFSETS, METADATA, FIND_COORDINATOR = 0, 1, 2, 3, 10
API_VERSIONS, CREATE_TOPICS, DELETE_TOPICS, DELETE_RECORDS = 18, 19, 20, 21
INIT_PRODUCER_ID, OFFSET_FOR_LEADER_EPOCH, DESCRIBE_CONFIGS, ALTER_CONFIGS = 22, 23, 32, 33
ALTER_REPLICA_LOG_DIRS, DESCRIBE_LOG_DIRS, CREATE_PARTITIONS, INCREMENTAL_ALTER_CONFIGS = 34, 35, 37, 44
UPDATE_FEATURES = 57
DESCRIBE_CLUSTER, DESCRIBE_PRODUCERS, DESCRIBE_TOPIC_PARTITIONS = 60, 61, 75
LIST_CONFIG_RESOURCES = 74
DESCRIBE_CLIENT_QUOTAS, ALTER_CLIENT_QUOTAS = 48, 49
DESCRIBE_GROUPS = 15


T0: Final = 1_700_000_000_000
"""The timestamp of the first record in `filled`."""
WORDING: Final = {"error_message", "batch_index_error_message", "throttle_time", "documentation"}
OF_A_CLUSTER: Final = {"cluster_id", "host", "port", "log_dir", "total_bytes", "usable_bytes", "producer_id"}
OF_A_MOMENT: Final = {"transaction_start_time"}
BROKER_IDS: Final = {"node_id", "leader_id", "controller_id", "broker_id"}
BROKER_ID_LISTS: Final = {"replica_nodes", "isr_nodes", "offline_replicas"}


class Scene:
    """One broker, and the topics that cases have made on it."""

    def __init__(self, bootstrap: str) -> None:
        self.connection = Connection(bootstrap)
        self.tag = uuid.uuid4().hex[:8]
        """Part of every topic's name, so that a Kafka which stays up can be used again."""
        self.bootstrap = bootstrap
        self._ids: dict[str, Any] = {}

    def ask(self, key: int, version: int, body: dict[str, Any]) -> Any:
        """The neutral form of an answer, or "closed"."""
        try:
            return neutral(plain(self.connection.ask(key, version, body)), self.tag)
        except AssertionError as error:
            if "was closed" not in str(error):
                raise
            self.connection.socket.close()
            self.connection = Connection(self.bootstrap)
            return "closed"

    def topic(self, name: str, partitions: int = 1, configs: dict[str, str] | None = None) -> dict[str, Any]:
        """A topic's name and id under every name that requests have for them; made when it is first asked for."""
        full = f"{name}-{self.tag}"
        if full not in self._ids:
            entries = [{"name": key, "value": value} for key, value in (configs or {}).items()]
            wanted = {"name": full, "num_partitions": partitions, "replication_factor": 1, "configs": entries}
            answer = self.connection.ask(CREATE_TOPICS, 7, {"topics": [wanted], "timeout": 10_000})
            assert answer.topics[0].error_code == 0, answer
            self._ids[full] = answer.topics[0].topic_id
            wait_until(lambda: self._is_led(full, partitions), f"leaders of {full}")
        return {"name": full, "topic": full, "topic_id": self._ids[full]}

    def filled(self) -> dict[str, Any]:
        """A topic of two partitions: two batches of five records in the first, nothing in the second."""
        fresh = f"filled-{self.tag}" not in self._ids
        topic = self.topic("filled", 2)
        if fresh:
            for number in range(2):
                records = batch([b"value %d" % i for i in range(5)], timestamp=T0 + 100 * number)
                data = [{**topic, "partition_data": [{"index": 0, "records": records}]}]
                self.connection.ask(PRODUCE, 9, {"acks": -1, "timeout": 10_000, "topic_data": data})
        return topic

    def log_dir(self) -> str:
        """The directory in which this broker keeps its data."""
        [found] = self.connection.ask(DESCRIBE_LOG_DIRS, 4, {"topics": None}).results
        return str(found.log_dir)

    def connect_as_broker(self) -> Connection:
        """A connection that may ask what only brokers may: Barnabas wants a proof, Kafka believes it of everybody."""
        connection = Connection(self.bootstrap)
        logs = Path(self.log_dir())
        metadata = logs.with_name(f"{logs.name}.metadata")
        if metadata.exists():
            own = self.connection.ask(DESCRIBE_CLUSTER, 0, {}).controller_id
            introduce(connection, metadata, own + 1, own)
        return connection

    def versions(self, key: int) -> range:
        """What this broker advertises for an API."""
        advertised = self.connection.ask(API_VERSIONS, 0, {}).api_keys
        [found] = [api for api in advertised if api.api_key == key]
        return range(found.min_version, found.max_version + 1)

    def has_producer_ids(self) -> bool:
        """Whether producer ids are given out yet: Kafka gets its first block of them when the first is asked for."""
        body = {"transaction_timeout": 60_000, "producer_id": -1, "producer_epoch": -1}
        return bool(self.connection.ask(INIT_PRODUCER_ID, 4, body).error_code == 0)

    def has_coordinators(self) -> bool:
        """Whether groups are served yet: the first who looks for a coordinator makes brokers create their topic."""
        self.connection.ask(FIND_COORDINATOR, 4, {"key_type": 0, "coordinator_keys": ["any"]})
        groups = [f"group-{number}" for number in range(100)]
        described = self.connection.ask(DESCRIBE_GROUPS, 5, {"groups": groups}).groups
        return all(group.error_code == 0 for group in described)

    def has_transactions(self) -> bool:
        """Whether transactions are coordinated yet: their topic, too, is made for the first who looks for it."""
        self.connection.ask(FIND_COORDINATOR, 4, {"key_type": 1, "coordinator_keys": ["any"]})
        body = {"transactional_id": f"any-{self.tag}", "transaction_timeout": 60_000}
        body |= {"producer_id": -1, "producer_epoch": -1}
        return bool(self.connection.ask(INIT_PRODUCER_ID, 4, body).error_code == 0)

    def _is_led(self, topic: str, partitions: int) -> bool:
        """Whether every partition answers: metadata names a leader a moment before it serves."""
        asked = [{"partition_index": index, "timestamp": -1} for index in range(partitions)]
        topics = [{"name": topic, "partitions": asked}]
        [found] = self.connection.ask(LIST_OFFSETS, 7, {"replica_id": -1, "topics": topics}).topics
        return all(partition.error_code == 0 for partition in found.partitions)


def neutral(answer: Any, tag: str, name: str = "") -> Any:
    """An answer without what differs between any two clusters."""
    if isinstance(answer, dict):
        differs = WORDING | OF_A_CLUSTER | OF_A_MOMENT
        return {key: neutral(value, tag, key) for key, value in answer.items() if key not in differs}
    if name in BROKER_ID_LISTS:
        return len(answer)
    if isinstance(answer, list):
        items = [neutral(item, tag) for item in answer]
        return sorted(items, key=repr) if name == "partitions" else items
    if name in BROKER_IDS:
        return answer >= 0
    if name == "topic_id":
        return answer is not None and answer.int != 0
    return answer.replace(tag, "") if isinstance(answer, str) else answer
