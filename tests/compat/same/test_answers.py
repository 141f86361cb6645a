"""Every version of every API, asked of Barnabas and of Apache Kafka 4.3.0 side by side: the answers are the same.

Compared is everything but what must differ between two clusters (ids, addresses) and the wording of messages. Where
Barnabas answers otherwise on purpose, the case says so.
"""

from __future__ import annotations

import pprint
from typing import TYPE_CHECKING, Any, Final

import pytest
from kio.index import load_request_schema, load_response_schema

from tests.compat.same.bodies import (
    GZIP,
    THREE,
    TOPIC_RESOURCE,
    UNKNOWN,
    alter,
    create,
    feature,
    fetch,
    keyed,
    offsets,
    one_partition,
    one_record,
    produce,
)
from tests.compat.same.scene import (
    ALTER_CONFIGS,
    ALTER_REPLICA_LOG_DIRS,
    API_VERSIONS,
    CREATE_PARTITIONS,
    CREATE_TOPICS,
    DELETE_RECORDS,
    DELETE_TOPICS,
    DESCRIBE_CLUSTER,
    DESCRIBE_CONFIGS,
    DESCRIBE_LOG_DIRS,
    DESCRIBE_PRODUCERS,
    DESCRIBE_TOPIC_PARTITIONS,
    FETCH,
    INCREMENTAL_ALTER_CONFIGS,
    INIT_PRODUCER_ID,
    LIST_OFFSETS,
    METADATA,
    OFFSET_FOR_LEADER_EPOCH,
    PRODUCE,
    T0,
    UPDATE_FEATURES,
    Scene,
)
from tests.support.wire import batch, plain, varint

if TYPE_CHECKING:
    from tests.compat.same.bodies import Body

TEN_WITHOUT_KEY: Final = [(T0, None if number % 10 == 3 else b"k") for number in range(100)]
POISON: Final = {
    "noise of the right length": varint(20) + b"\xff" * 20,
    "a key beyond the record": varint(20) + b"\0\0\0" + varint(2**31 - 1) + bytes(12),
    "a value beyond the record": varint(20) + b"\0\0\0\x01" + varint(100) + bytes(15),
    "a value that ends before the record": varint(20) + b"\0\0\0\x01\x02" + bytes(15),
    "headers that are not there": varint(6) + b"\0\0\0\x01\x01\x02",
    "a record beyond the batch": varint(200) + bytes(20),
    "bytes behind the record": varint(6) + b"\0\0\0\x01\x01\0" + b"more",
    "a header without a key": varint(8) + b"\0\0\0\x01\x01\x02\x01\x01",
}
SET, DELETE, APPEND, SUBTRACT = range(4)

# The API, the request, and the first version that the request makes sense in where that is not the first of all.
CASES: Final[dict[str, tuple[int, Body] | tuple[int, Body, int]]] = {
    "produce: a batch": (PRODUCE, produce(batch(THREE))),
    "produce: acks of all": (PRODUCE, produce(batch(THREE), acks=-1)),
    "produce: acks of 5": (PRODUCE, produce(batch(THREE), acks=5)),
    "produce: a damaged batch": (PRODUCE, produce(batch(THREE, crc=1))),
    "produce: a batch cut short": (PRODUCE, produce(batch(THREE)[:-1])),
    "produce: two batches": (PRODUCE, produce(batch(THREE) * 2)),
    "produce: empty records": (PRODUCE, produce(b"")),
    "produce: magic 1": (PRODUCE, produce(batch(THREE, magic=1))),
    "produce: a marker": (PRODUCE, produce(batch(THREE, attributes=0x20))),
    "produce: a transaction that is none": (PRODUCE, produce(batch(THREE, attributes=0x10))),
    "produce: an unknown codec": (PRODUCE, produce(batch(THREE, attributes=5))),
    "produce: a count that lies": (PRODUCE, produce(batch(THREE, record_count=7))),
    "produce: counts that agree in their lie": (PRODUCE, produce(batch(THREE, record_count=7, last_offset_delta=6))),
    "produce: far in the future": (PRODUCE, produce(batch(THREE, timestamp=T0 * 3))),
    "produce: a maximum that is not the last": (PRODUCE, produce(batch(THREE, max_timestamp=T0 + 50))),
    "produce: one of three in the future": (
        PRODUCE, produce(keyed([(T0, b"k"), (T0 * 3, b"k"), (T0, b"k")]))
    ),
    "produce: ten of a hundred without key, compacted": (
        PRODUCE, produce(keyed(TEN_WITHOUT_KEY), config=("cleanup.policy", "compact"))
    ),
    "produce: ten of a hundred without key, compacted and compressed": (
        PRODUCE, produce(keyed(TEN_WITHOUT_KEY, GZIP), config=("cleanup.policy", "compact"))
    ),
    "produce: offset deltas in disorder": (PRODUCE, produce(keyed([(T0, b"k")] * 3, deltas=(7, 1, 1)))),
    "produce: offset deltas in disorder, gzip": (
        PRODUCE,
        produce(keyed([(T0, b"k")] * 3, GZIP, deltas=(7, 1, 1)), config=("message.timestamp.type", "CreateTime")),
    ),
    **{f"produce: {what}": (PRODUCE, produce(one_record(records))) for what, records in POISON.items()},
    **{f"produce: {what}, gzip": (PRODUCE, produce(one_record(records, GZIP))) for what, records in POISON.items()},
    "produce: an unknown partition": (PRODUCE, produce(batch(THREE), index=9)),
    "produce: an idempotent gap": (
        PRODUCE, produce(batch(THREE, producer_id=9_000, producer_epoch=0, base_sequence=4))
    ),
    "produce: too large": (PRODUCE, produce(batch([bytes(5_000)]), config=("max.message.bytes", "1000"))),
    "produce: without key, compacted": (PRODUCE, produce(batch(THREE), config=("cleanup.policy", "compact"))),
    "produce: an unknown topic": (
        PRODUCE, lambda _: {"acks": 1, "timeout": 5_000, "topic_data": one_partition(UNKNOWN, records=batch(THREE))}
    ),
    "fetch: from the start": (FETCH, fetch()),
    "fetch: from within a batch": (FETCH, fetch(7)),
    "fetch: at the end": (FETCH, fetch(10)),
    "fetch: behind the end": (FETCH, fetch(11)),
    "fetch: a negative offset": (FETCH, fetch(-5)),
    "fetch: less than a batch": (FETCH, fetch(max_bytes=10)),
    "fetch: committed only": (FETCH, fetch(isolation_level=1)),
    "fetch: an epoch that is to come": (FETCH, fetch(current_leader_epoch=99)),
    "fetch: an unknown partition": (FETCH, fetch(index=9)),
    "fetch: a session that is none": (FETCH, fetch(session_id=12_345, session_epoch=3)),
    "fetch: an unknown topic": (
        FETCH, lambda _: {"replica_id": -1, "max_wait": 0, "session_epoch": -1, "max_bytes": 100_000,
                          "topics": one_partition(UNKNOWN, fetch_offset=0, partition_max_bytes=100)}
    ),
    "offsets: latest": (LIST_OFFSETS, offsets(-1)),
    "offsets: latest committed": (LIST_OFFSETS, offsets(-1, isolation_level=1)),
    "offsets: earliest": (LIST_OFFSETS, offsets(-2)),
    "offsets: highest timestamp": (LIST_OFFSETS, offsets(-3)),
    "offsets: earliest local": (LIST_OFFSETS, offsets(-4)),
    "offsets: latest tiered": (LIST_OFFSETS, offsets(-5)),
    "offsets: a number without meaning": (LIST_OFFSETS, offsets(-9)),
    "offsets: by time": (LIST_OFFSETS, offsets(T0 + 3)),
    "offsets: by time, between batches": (LIST_OFFSETS, offsets(T0 + 50)),
    "offsets: by a time to come": (LIST_OFFSETS, offsets(T0 * 2)),
    "offsets: an empty partition": (LIST_OFFSETS, offsets(-3, index=1)),
    "offsets: an unknown partition": (LIST_OFFSETS, offsets(-1, index=9)),
    "offsets: an epoch that is to come": (LIST_OFFSETS, offsets(-1, current_leader_epoch=99)),
    "offsets: an unknown topic": (
        LIST_OFFSETS, lambda _: {"replica_id": -1, "topics": one_partition(UNKNOWN, timestamp=-1)}
    ),
    "metadata: a topic": (METADATA, lambda scene: {"topics": [{"name": scene.filled()["name"]}]}),
    "metadata: no topic": (METADATA, lambda _: {"topics": []}, 1),
    "metadata: an unknown topic": (
        METADATA, lambda s: {"topics": [{"name": f"unknown-{s.tag}"}], "allow_auto_topic_creation": False}, 4
    ),
    "metadata: an impossible name": (METADATA, lambda _: {"topics": [{"name": "a b"}]}),
    "metadata: permissions": (
        METADATA,
        lambda scene: {
            "topics": [{"name": scene.filled()["name"]}],
            "include_topic_authorized_operations": True,
            "include_cluster_authorized_operations": True,
        },
    ),
    "epochs: the present one": (
        OFFSET_FOR_LEADER_EPOCH,
        lambda s: {"replica_id": -1, "topics": one_partition(s.filled(), leader_epoch=0, current_leader_epoch=-1)},
    ),
    "epochs: one to come": (
        OFFSET_FOR_LEADER_EPOCH,
        lambda s: {"replica_id": -1, "topics": one_partition(s.filled(), leader_epoch=5, current_leader_epoch=-1)},
    ),
    "epochs: an unknown topic": (
        OFFSET_FOR_LEADER_EPOCH,
        lambda _: {"replica_id": -1, "topics": one_partition(UNKNOWN, leader_epoch=0, current_leader_epoch=-1)},
    ),
    "producer ids": (
        INIT_PRODUCER_ID, lambda _: {"transaction_timeout": 60_000, "producer_id": -1, "producer_epoch": -1}
    ),
    "create: one": (CREATE_TOPICS, create()),
    "create: defaults": (CREATE_TOPICS, create(num_partitions=-1, replication_factor=-1)),
    "create: no partition": (CREATE_TOPICS, create(num_partitions=0)),
    "create: less than a partition": (CREATE_TOPICS, create(num_partitions=-7)),
    "create: ever so many partitions": (CREATE_TOPICS, create(num_partitions=2**31 - 1)),
    "create: two replicas": (CREATE_TOPICS, create(replication_factor=2)),
    "create: no replica": (CREATE_TOPICS, create(replication_factor=0)),
    "create: no name": (CREATE_TOPICS, create(name="")),
    "create: a dot": (CREATE_TOPICS, create(name=".")),
    "create: a bad name": (CREATE_TOPICS, create(name="ä")),
    "create: a long name": (CREATE_TOPICS, create(name="x" * 250)),
    "create: unknown key": (CREATE_TOPICS, create(configs=[{"name": "no.such", "value": "1"}])),
    "create: null value": (CREATE_TOPICS, create(configs=[{"name": "retention.ms", "value": None}])),
    "create: bad value": (CREATE_TOPICS, create(configs=[{"name": "retention.ms", "value": "-2"}])),
    "create: bad list": (CREATE_TOPICS, create(configs=[{"name": "cleanup.policy", "value": "delete,burn"}])),
    "create: bad enum": (CREATE_TOPICS, create(configs=[{"name": "compression.type", "value": "rar"}])),
    "create: assignment to nobody": (
        CREATE_TOPICS,
        create(num_partitions=-1, replication_factor=-1, assignments=[{"partition_index": 0, "broker_ids": [99]}]),
    ),
    "create: assignment to no one": (
        CREATE_TOPICS,
        create(num_partitions=-1, replication_factor=-1, assignments=[{"partition_index": 0, "broker_ids": []}]),
    ),
    "create: assignment with a hole": (
        CREATE_TOPICS,
        create(num_partitions=-1, replication_factor=-1, assignments=[{"partition_index": 1, "broker_ids": [1]}]),
    ),
    "create: assignment and count": (CREATE_TOPICS, create(assignments=[{"partition_index": 0, "broker_ids": [1]}])),
    "create: what is there": (
        CREATE_TOPICS,
        lambda scene: {
            "topics": [{**scene.filled(), "num_partitions": 1, "replication_factor": 1}],
            "timeout": 5_000,
            "validate_only": True,
        },
    ),
    "create: one name twice": (
        CREATE_TOPICS,
        lambda s: {
            "topics": [{"name": f"twice-{s.tag}", "num_partitions": 1, "replication_factor": 1}] * 2,
            "timeout": 5_000,
            "validate_only": True,
        },
    ),
    "delete: an unknown topic": (
        DELETE_TOPICS,
        lambda s: {
            "topic_names": [f"unknown-{s.tag}"],
            "topics": [{"name": f"unknown-{s.tag}", "topic_id": None}],
            "timeout": 5_000,
        },
    ),
    "grow: less": (
        CREATE_PARTITIONS,
        lambda s: {"topics": [{**s.filled(), "count": 1}], "timeout": 5_000, "validate_only": True},
    ),
    "grow: the same": (
        CREATE_PARTITIONS,
        lambda s: {"topics": [{**s.filled(), "count": 2}], "timeout": 5_000, "validate_only": True},
    ),
    "grow: more": (
        CREATE_PARTITIONS,
        lambda s: {"topics": [{**s.filled(), "count": 5}], "timeout": 5_000, "validate_only": True},
    ),
    "grow: nothing": (
        CREATE_PARTITIONS,
        lambda s: {"topics": [{**s.filled(), "count": -1}], "timeout": 5_000, "validate_only": True},
    ),
    "grow: an unknown topic": (
        CREATE_PARTITIONS,
        lambda _: {"topics": [{**UNKNOWN, "count": 5}], "timeout": 5_000, "validate_only": True},
    ),
    "grow: too few assignments": (
        CREATE_PARTITIONS,
        lambda s: {
            "topics": [{**s.filled(), "count": 5, "assignments": [{"broker_ids": [1]}]}],
            "timeout": 5_000,
            "validate_only": True,
        },
    ),
    "configs: of an unknown topic": (
        DESCRIBE_CONFIGS, lambda _: {"resources": [{"resource_type": TOPIC_RESOURCE, "resource_name": "nowhere"}]}
    ),
    "configs: of an unknown kind": (
        DESCRIBE_CONFIGS, lambda _: {"resources": [{"resource_type": 77, "resource_name": "x"}]}
    ),
    "configs: some keys": (
        DESCRIBE_CONFIGS,
        lambda scene: {
            "resources": [
                {
                    "resource_type": TOPIC_RESOURCE,
                    "resource_name": scene.filled()["name"],
                    "configuration_keys": ["retention.ms", "no.such.key", "cleanup.policy"],
                }
            ],
            "include_synonyms": True,
        },
    ),
    "alter: one": (INCREMENTAL_ALTER_CONFIGS, alter(("retention.ms", "5000", SET))),
    "alter: unknown key": (INCREMENTAL_ALTER_CONFIGS, alter(("no.such.key", "5000", SET))),
    "alter: bad value": (INCREMENTAL_ALTER_CONFIGS, alter(("retention.ms", "x", SET))),
    "alter: null value": (INCREMENTAL_ALTER_CONFIGS, alter(("retention.ms", None, SET))),
    "alter: delete what is not set": (INCREMENTAL_ALTER_CONFIGS, alter(("retention.ms", None, DELETE))),
    "alter: append to a number": (INCREMENTAL_ALTER_CONFIGS, alter(("retention.ms", "5", APPEND))),
    "alter: append what is there": (INCREMENTAL_ALTER_CONFIGS, alter(("cleanup.policy", "delete", APPEND))),
    "alter: subtract what is not there": (INCREMENTAL_ALTER_CONFIGS, alter(("cleanup.policy", "compact", SUBTRACT))),
    "alter: an operation without meaning": (INCREMENTAL_ALTER_CONFIGS, alter(("cleanup.policy", "compact", 9))),
    "alter: one key twice": (
        INCREMENTAL_ALTER_CONFIGS, alter(("retention.ms", "5000", SET), ("retention.ms", "6000", SET))
    ),
    "alter: an unknown topic": (
        INCREMENTAL_ALTER_CONFIGS, alter(("retention.ms", "5000", SET), resource="nowhere")
    ),
    "replace: all": (ALTER_CONFIGS, alter(("retention.ms", "5000", SET))),
    "replace: bad value": (ALTER_CONFIGS, alter(("retention.ms", "x", SET))),
    "replace: null value": (ALTER_CONFIGS, alter(("retention.ms", None, SET))),
    "cluster": (DESCRIBE_CLUSTER, lambda _: {"endpoint_type": 1, "include_cluster_authorized_operations": True}),
    "cluster: controllers": (DESCRIBE_CLUSTER, lambda _: {"endpoint_type": 2}),
    "log directories": (
        DESCRIBE_LOG_DIRS, lambda scene: {"topics": [{**scene.filled(), "partitions": [0, 1]}]}
    ),
    "put: a directory that is not there": (
        ALTER_REPLICA_LOG_DIRS,
        lambda scene: {"dirs": [{"path": "/nowhere", "topics": [{**scene.filled(), "partitions": [0, 9]}]}]},
    ),
    "put: an unknown topic": (
        ALTER_REPLICA_LOG_DIRS,
        lambda scene: {"dirs": [{"path": scene.log_dir(), "topics": [{**UNKNOWN, "partitions": [0]}]}]},
    ),
    "put: where it is": (
        ALTER_REPLICA_LOG_DIRS,
        lambda scene: {"dirs": [{"path": scene.log_dir(), "topics": [{**scene.filled(), "partitions": [0, 1]}]}]},
    ),
    "features: as it is": (UPDATE_FEATURES, feature("group.version", 1)),
    "features: off": (UPDATE_FEATURES, feature("group.version", 0, 2), 1),
    "features: two": (UPDATE_FEATURES, feature("group.version", 1, more=[("transaction.version", 2)])),
    "features: one of two": (UPDATE_FEATURES, feature("group.version", 1, more=[("transaction.version", 77)])),
    "features: down by an upgrade": (UPDATE_FEATURES, feature("transaction.version", 0)),
    "features: too high": (UPDATE_FEATURES, feature("transaction.version", 77)),
    "features: less than nothing": (UPDATE_FEATURES, feature("transaction.version", -1)),
    "features: a direction without meaning": (UPDATE_FEATURES, feature("transaction.version", 2, 9), 1),
    "features: an unknown one": (UPDATE_FEATURES, feature("no.such", 1)),
    "topic partitions": (
        DESCRIBE_TOPIC_PARTITIONS,
        lambda scene: {"topics": [{"name": scene.filled()["name"]}], "response_partition_limit": 2_000},
    ),
    "topic partitions, one at a time": (
        DESCRIBE_TOPIC_PARTITIONS,
        lambda scene: {"topics": [{"name": scene.filled()["name"]}], "response_partition_limit": 1},
    ),
    "topic partitions of an unknown topic": (
        DESCRIBE_TOPIC_PARTITIONS, lambda _: {"topics": [{"name": "nowhere"}], "response_partition_limit": 1}
    ),
    "producers: none": (
        DESCRIBE_PRODUCERS, lambda scene: {"topics": [{**scene.filled(), "partition_indexes": [0, 1, 9]}]}
    ),
    "producers: an unknown topic": (
        DESCRIBE_PRODUCERS, lambda _: {"topics": [{**UNKNOWN, "partition_indexes": [0]}]}
    ),
    "delete records: beyond the end": (
        DELETE_RECORDS, lambda s: {"topics": one_partition(s.filled(), offset=11), "timeout": 5_000}
    ),
    "delete records: a negative offset": (
        DELETE_RECORDS, lambda s: {"topics": one_partition(s.filled(), offset=-7), "timeout": 5_000}
    ),
    "delete records: an unknown partition": (
        DELETE_RECORDS, lambda s: {"topics": one_partition(s.filled(), index=9, offset=0), "timeout": 5_000}
    ),
    "delete records: some": (
        DELETE_RECORDS, lambda s: {"topics": one_partition(s.topic("shortened"), offset=-1), "timeout": 5_000}
    ),
}  # fmt: skip

ON_PURPOSE: Final[dict[str, set[str]]] = {
    "produce: a transaction that is none": {"error_code"},  # Kafka asks for the transactional id first
    "produce: an unknown codec": {"error_code", "log_start_offset"},  # Kafka calls it an unexpected error of its own
    "alter: an operation without meaning": {"error_code"},  # likewise
    "produce: an idempotent gap": {"log_append_time"},  # Kafka names a time for repeated batches of CreateTime topics
    "fetch: an unknown partition": {"aborted_transactions"},  # null and empty are one to every client
    "fetch: an unknown topic": {"aborted_transactions"},
    # Kafka tells the log start with some refusals and not with others; clients look at it in stored batches only
    "produce: a marker": {"log_start_offset"},
    "produce: a count that lies": {"log_start_offset"},
    "produce: counts that agree in their lie": {"log_start_offset"},
    "produce: far in the future": {"log_start_offset"},
    # Kafka means to put them right, as it is done here, and stumbles over it
    "produce: offset deltas in disorder, gzip": {"error_code", "base_offset", "log_start_offset"},
    "produce: one of three in the future": {"log_start_offset"},
    "produce: without key, compacted": {"log_start_offset"},
    "produce: ten of a hundred without key, compacted": {"log_start_offset"},
    "produce: ten of a hundred without key, compacted and compressed": {"log_start_offset"},
    **{f"produce: {what}": {"log_start_offset"} for what in (*POISON, *(f"{what}, gzip" for what in POISON))},
    "create: one": {"config_source"},  # Kafka notes min.insync.replicas as a dynamic default when it is first set up
    "create: defaults": {"config_source"},
}
"""Fields in which Barnabas answers otherwise, and why."""
NEWER: Final = {"errors.deadletterqueue.group.enable"}
"""Config keys of topics that are younger than the Kafka of this comparison: they came with Kafka 4.4."""


def without(answer: Any, names: set[str]) -> Any:
    """An answer without these fields, and without config keys that the other broker cannot know."""
    if isinstance(answer, dict):
        return {key: without(value, names) for key, value in answer.items() if key not in names}
    if isinstance(answer, list):
        return [without(item, names) for item in answer if not (isinstance(item, dict) and item.get("name") in NEWER)]
    return answer


def known(key: int, version: int) -> bool:
    """Whether messages of this version can be written and read here."""
    try:
        load_request_schema(key, version)
        load_response_schema(key, version)
    except Exception:  # whatever kio raises for what it does not have
        return False
    return True


def test_the_same_versions_are_advertised(scenes: tuple[Scene, Scene]) -> None:
    ours, theirs = (plain(scene.connection.ask(API_VERSIONS, 0, {}))["api_keys"] for scene in scenes)
    assert [api for api in ours if api not in theirs] == []


@pytest.mark.parametrize("name", CASES)
def test_the_answer_is_the_same(scenes: tuple[Scene, Scene], name: str) -> None:
    key, body, *rest = CASES[name]
    first = rest[0] if rest else 0
    ours, theirs = scenes
    asked = [version for version in theirs.versions(key) if version >= first and known(key, version)]
    assert asked
    differences = {}
    for version in asked:
        mine, real = (
            without(scene.ask(key, version, body(scene)), ON_PURPOSE.get(name, set())) for scene in (ours, theirs)
        )
        if mine != real:
            differences[version] = {"Barnabas": mine, "Kafka": real}
    assert not differences, pprint.pformat(differences, width=150, compact=True)
