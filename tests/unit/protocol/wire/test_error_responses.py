from __future__ import annotations

import dataclasses
import io
from typing import TYPE_CHECKING, Any
from uuid import UUID

import pytest
from kio.index import load_request_schema, load_response_schema
from kio.serial import entity_reader, entity_writer

from barnabas.broker.serving.registry import APIS, Api
from barnabas.model.errors import ErrorCode
from barnabas.protocol.apis import ApiKey
from barnabas.protocol.wire import codec
from barnabas.protocol.wire.api_table import Each
from barnabas.protocol.wire.error_responses import error_response
from tests.support.wire import build

if TYPE_CHECKING:
    from collections.abc import Iterator

CODE = ErrorCode.policy_violation
TOPIC_ID = UUID(int=5)
BY_NAME: dict[str, Any] = {"name": "t", "topic": "t", "topic_id": TOPIC_ID}
PARTITIONS: dict[str, Any] = {"partitions": [{"partition_index": 3, "partition": 3}], "partition_indexes": [3]}
VALUES: dict[ApiKey, dict[str, Any]] = {
    ApiKey.METADATA: {"topics": [{"name": "t"}]},
    ApiKey.CREATE_ACLS: {"creations": [{"resource_name": "t"}]},
    ApiKey.DELETE_ACLS: {"filters": [{"resource_name_filter": "t"}]},
    ApiKey.OFFSET_FETCH: {
        "group_id": "g",
        "topics": [BY_NAME | PARTITIONS],
        "groups": [{"group_id": "g", "topics": [BY_NAME | PARTITIONS]}],
    },
    ApiKey.FIND_COORDINATOR: {"key": "g", "coordinator_keys": ["g"]},
    ApiKey.DESCRIBE_GROUPS: {"groups": ["g"]},
    ApiKey.DELETE_GROUPS: {"groups_names": ["g"]},
    ApiKey.CONSUMER_GROUP_DESCRIBE: {"group_ids": ["g"]},
    ApiKey.SHARE_GROUP_DESCRIBE: {"group_ids": ["g"]},
    ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS: {"groups": [{"group_id": "g", "topics": None}]},
    ApiKey.CREATE_TOPICS: {"topics": [{"name": "t", "num_partitions": 4, "configs": [{"name": "a", "value": "b"}]}]},
    ApiKey.CREATE_PARTITIONS: {"topics": [{"name": "t", "count": 3}]},
    ApiKey.DELETE_TOPICS: {"topics": [{"name": "t", "topic_id": None}], "topic_names": ["t"]},
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: {"topics": [{"name": "t"}]},
    ApiKey.ALTER_REPLICA_LOG_DIRS: {"dirs": [{"path": "/a", "topics": [{"name": "t", "partitions": [3]}]}]},
    ApiKey.DESCRIBE_LOG_DIRS: {"topics": None},
    ApiKey.ADD_PARTITIONS_TO_TXN: {
        "v3_and_below_topics": [{"name": "t", "partitions": [3]}],
        "transactions": [{"transactional_id": "x", "topics": [{"name": "t", "partitions": [3]}]}],
    },
    ApiKey.WRITE_TXN_MARKERS: {"markers": [{"producer_id": 7, "topics": [{"name": "t", "partition_indexes": [3]}]}]},
    ApiKey.DESCRIBE_TRANSACTIONS: {"transactional_ids": ["x"]},
    ApiKey.SASL_AUTHENTICATE: {"auth_bytes": b"x"},
    ApiKey.RENEW_DELEGATION_TOKEN: {"hmac": b"x"},
    ApiKey.EXPIRE_DELEGATION_TOKEN: {"hmac": b"x"},
    ApiKey.ALTER_CLIENT_QUOTAS: {"entries": [{"entity": [{"entity_type": "user", "entity_name": None}]}]},
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: {
        "deletions": [{"name": "u", "mechanism": 1}],
        "upsertions": [{"name": "v", "salt": b"x", "salted_password": b"x"}],
    },
}
FOR_RESOURCES = {"resources": [{"resource_type": 2, "resource_name": "t"}]}
SILENT = {(ApiKey.DESCRIBE_LOG_DIRS, 1), (ApiKey.DESCRIBE_LOG_DIRS, 2), (ApiKey.ELECT_LEADERS, 0)}
"""Versions whose responses have no place for an error; of the first, Kafka tells nothing then, too."""

CLIENTS = [api for api in APIS if not api.raw and not api.is_internal]


def asked(api: Api, version: int) -> Any:
    """A request of this version that names one of everything, as its handler would get it."""
    values = VALUES.get(api.key, {"group_id": "g", "topics": [BY_NAME | PARTITIONS], **FOR_RESOURCES})
    message = build(load_request_schema(api.key, version), values)
    buffer = io.BytesIO()
    entity_writer(type(message))(buffer, message)
    return codec.decode(api.key, version, api.newest, memoryview(buffer.getvalue()), 0)


def answered(api: Api, version: int) -> Any:
    """What a client reads that asked in this version and is told the error."""
    response = error_response(api.key, version, api.newest, asked(api, version), CODE, "why")
    frame = codec.encode(api.key, version, 77, response)
    start = 9 if codec.has_flexible_header(api.key, version) else 8
    read, size = entity_reader(load_response_schema(api.key, version))(frame, start)
    assert start + size == len(frame)
    return read


def found(message: Any, name: str) -> Iterator[Any]:
    """All values of the fields of this name, however deep."""
    if isinstance(message, tuple):
        for part in message:
            yield from found(part, name)
    elif dataclasses.is_dataclass(message):
        for field in dataclasses.fields(message):
            value = getattr(message, field.name)
            if field.name == name:
                yield value
            yield from found(value, name)


@pytest.mark.parametrize("api", CLIENTS, ids=lambda api: api.key.name)
def test_every_api_tells_the_error_in_every_version(api: Api) -> None:
    at_top_too = {ErrorCode.none} if isinstance(api.format.errors, Each) else set()
    for version in range(api.oldest, api.newest + 1):
        answer = answered(api, version)
        codes = {*found(answer, "error_code"), *found(answer, "partition_error_code")}
        expected = set() if (api.key, version) in SILENT else {CODE}
        assert codes - at_top_too == expected, f"version {version}"


@pytest.mark.parametrize(
    ("key", "field", "told"),
    [
        (ApiKey.LIST_OFFSETS, "name", ["t"]),
        (ApiKey.LIST_OFFSETS, "partition_index", [3]),
        (ApiKey.LIST_OFFSETS, "timestamp", [-1]),
        (ApiKey.OFFSET_COMMIT, "topic_id", [TOPIC_ID]),
        (ApiKey.OFFSET_COMMIT, "partition_index", [3]),
        (ApiKey.OFFSET_FETCH, "group_id", ["g"]),
        (ApiKey.OFFSET_FOR_LEADER_EPOCH, "partition", [3]),
        (ApiKey.OFFSET_FOR_LEADER_EPOCH, "leader_epoch", [-1]),
        (ApiKey.DELETE_RECORDS, "low_watermark", [-1]),
        (ApiKey.DESCRIBE_PRODUCERS, "partition_index", [3]),
        (ApiKey.FIND_COORDINATOR, "key", ["g"]),
        (ApiKey.FIND_COORDINATOR, "node_id", [-1]),
        (ApiKey.FIND_COORDINATOR, "error_message", ["why"]),
        (ApiKey.ALTER_CLIENT_QUOTAS, "entity_type", ["user"]),
        (ApiKey.ALTER_CLIENT_QUOTAS, "entity_name", [None]),
        (ApiKey.DESCRIBE_GROUPS, "group_id", ["g"]),
        (ApiKey.ALTER_REPLICA_LOG_DIRS, "topic_name", ["t"]),
        (ApiKey.ALTER_REPLICA_LOG_DIRS, "partition_index", [3]),
        (ApiKey.CREATE_TOPICS, "num_partitions", [-1]),
        (ApiKey.DELETE_TOPICS, "name", ["t"]),
        (ApiKey.ALTER_CONFIGS, "resource_name", ["t"]),
        (ApiKey.ALTER_USER_SCRAM_CREDENTIALS, "user", ["u", "v"]),
        (ApiKey.JOIN_GROUP, "generation_id", [-1]),
        (ApiKey.INIT_PRODUCER_ID, "producer_id", [-1]),
    ],
)
def test_a_response_says_what_the_error_is_about(key: ApiKey, field: str, told: list[Any]) -> None:
    (api,) = (api for api in CLIENTS if api.key is key)
    assert list(found(answered(api, api.newest), field)) == told


def test_the_oldest_offset_fetch_has_its_error_with_each_partition() -> None:
    (api,) = (api for api in CLIENTS if api.key is ApiKey.OFFSET_FETCH)
    response = answered(api, 1)
    assert [(topic.name, part.partition_index) for topic in response.topics for part in topic.partitions] == [("t", 3)]
