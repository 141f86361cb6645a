"""Requests that both brokers are asked, as what they have in common: each body is filled in for the scene it is for."""

from __future__ import annotations

import gzip
import uuid
from typing import TYPE_CHECKING, Any, Final

from tests.compat.same.scene import T0
from tests.support.wire import batch, varint

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tests.compat.same.scene import Scene

    Body = Callable[[Scene], dict[str, Any]]

TOPIC_RESOURCE: Final = 2
GZIP: Final = 1


def one_partition(topic: dict[str, Any], **partition: Any) -> list[dict[str, Any]]:
    """`topics` of a request that names one partition (under every name that requests have for these things)."""
    index = partition.pop("index", 0)
    data = {"index": index, "partition": index, "partition_index": index, **partition}
    return [{**topic, "partitions": [data], "partition_data": [data]}]


UNKNOWN: Final = {"name": "nowhere", "topic": "nowhere", "topic_id": uuid.UUID(int=77)}
THREE: Final = [b"one", b"two", b"three"]


def produce(records: bytes | None, acks: int = 1, index: int = 0, config: tuple[str, str] | None = None) -> Body:
    def body(scene: Scene) -> dict[str, Any]:
        topic = scene.topic(config[0], 1, dict([config])) if config else scene.topic("produced")
        data = one_partition(topic, index=index, records=records)
        return {"acks": acks, "timeout": 5_000, "topic_data": data}

    return body


def fetch(
    offset: int = 0, index: int = 0, current_leader_epoch: int = -1, max_bytes: int = 100_000, **top: int
) -> Body:
    def body(scene: Scene) -> dict[str, Any]:
        partition = {
            "fetch_offset": offset,
            "partition_max_bytes": max_bytes,
            "current_leader_epoch": current_leader_epoch,
            "last_fetched_epoch": -1,
            "log_start_offset": -1,
        }
        limits = {"replica_id": -1, "max_wait": 0, "min_bytes": 1, "max_bytes": 1_000_000, "session_epoch": -1, **top}
        return {**limits, "topics": one_partition(scene.filled(), index=index, **partition)}

    return body


def offsets(timestamp: int, index: int = 0, current_leader_epoch: int = -1, isolation_level: int = 0) -> Body:
    def body(scene: Scene) -> dict[str, Any]:
        partition = {"timestamp": timestamp, "current_leader_epoch": current_leader_epoch}
        topics = one_partition(scene.filled(), index=index, **partition)
        return {"replica_id": -1, "isolation_level": isolation_level, "topics": topics, "timeout": 5_000}

    return body


def create(**topic: Any) -> Body:
    def body(scene: Scene) -> dict[str, Any]:
        wanted = {"name": f"validated-{scene.tag}", "num_partitions": 1, "replication_factor": 1, **topic}
        return {"topics": [wanted], "timeout": 5_000, "validate_only": True}

    return body


def alter(*entries: tuple[str, str | None, int], resource: str | None = None) -> Body:
    """Validate alterations of a topic's configs: (key, value, operation)."""

    def body(scene: Scene) -> dict[str, Any]:
        configs = [{"name": key, "value": value, "config_operation": how} for key, value, how in entries]
        name = resource or scene.topic("altered")["name"]
        resources = [{"resource_type": TOPIC_RESOURCE, "resource_name": name, "configs": configs}]
        return {"resources": resources, "validate_only": True}

    return body


def feature(name: str, level: int, direction: int = 1, more: Sequence[tuple[str, int]] = ()) -> Body:
    """Validate levels of features; version 0 cannot only validate, and is asked for nothing that would be done."""
    updates = [
        {"feature": each, "max_version_level": number, "upgrade_type": direction, "allow_downgrade": direction != 1}
        for each, number in [(name, level), *more]
    ]
    return lambda _: {"timeout": 5_000, "feature_updates": updates, "validate_only": True}


def keyed(records: list[tuple[int, bytes | None]], codec: int = 0, deltas: Sequence[int] = ()) -> bytes:
    """A batch of records with these timestamps and keys; `deltas` are offset deltas that are not 0, 1, 2 and so on."""
    payload = b""
    for number, (timestamp, key) in enumerate(records):
        delta = deltas[number] if deltas else number
        fields = (varint(timestamp - T0), varint(delta), varint(-1) if key is None else varint(len(key)) + key)
        record = b"\0" + b"".join(fields) + varint(1) + b"v" + varint(0)
        payload += varint(len(record)) + record
    latest = max(timestamp for timestamp, _ in records)
    return batch([b""] * len(records), T0, attributes=codec, records=packed(payload, codec), max_timestamp=latest)


def one_record(record: bytes, codec: int = 0) -> bytes:
    """A batch that says it has one record."""
    return batch([b""], T0, attributes=codec, records=packed(record, codec))


def packed(records: bytes, codec: int) -> bytes:
    return gzip.compress(records) if codec == GZIP else records
