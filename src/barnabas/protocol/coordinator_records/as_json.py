"""The records of coordinators as the JSON that Kafka's DumpLogSegments prints.

Names and order are those of Kafka's schemas. What the record's version did not have yet is left out, and so are tagged
fields with their default; ids of topics are in Kafka's form, bytes in base64. What members of a classic consumer group
sent is shown as the consumer protocol that it is.
"""

from __future__ import annotations

import base64
import importlib
import json
from dataclasses import fields, is_dataclass
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from barnabas.model.errors import InvalidFrame
from barnabas.model.ids import uuid_to_text
from barnabas.protocol import coordinator_records
from barnabas.protocol.coordinator_records import (
    GroupMetadataValue,
    OffsetCommitKey,
    OffsetCommitValue,
    schemas,
    share_state,
    transaction_state,
)
from barnabas.protocol.wire import bounds

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from barnabas.protocol.coordinator_records.fields import Schema

DELETED: Final = "<DELETE>"
"""What is shown for a value that is not there."""
_NESTED: Final = (
    schemas.MEMBER_METADATA,
    schemas.PARTITION_METADATA,
    schemas.TOPIC_METADATA,
    schemas.CLASSIC_PROTOCOL,
    schemas.CLASSIC_MEMBER_METADATA,
    schemas.TARGET_TOPIC_PARTITIONS,
    schemas.CURRENT_TOPIC_PARTITIONS,
    schemas.TOPIC_PARTITIONS_INFO,
    schemas.TOPIC_INFO,
)
_SCHEMAS: Final[dict[type, Schema]] = {
    schema.of: schema
    for schema in (
        *_NESTED,
        *(part for record_type in schemas.RECORD_TYPES for part in (record_type.key, record_type.value)),
        *transaction_state.SCHEMAS,
        *share_state.SCHEMAS,
    )
}
_OFFSET_SINCE: Final = {"leader_epoch": 3, "topic_id": 4}
_EXPIRY_VERSION: Final = 1
_CONSUMER: Final = "consumer"
_NEWEST_CONSUMER_PROTOCOL: Final = 3


def offsets_record(key: bytes, value: bytes | None) -> tuple[str, str] | None:
    """Key and value of a record of `__consumer_offsets`; None if its type is not known. Raises InvalidRecord."""
    return _shown(coordinator_records.decode, key, value)


def transaction_record(key: bytes, value: bytes | None) -> tuple[str, str] | None:
    """Key and value of a record of `__transaction_state`; None if its type is not known. Raises InvalidRecord."""
    return _shown(transaction_state.decode, key, value)


def share_record(key: bytes, value: bytes | None) -> tuple[str, str] | None:
    """Key and value of a record of `__share_group_state`; None if its type is not known. Raises InvalidRecord."""
    return _shown(share_state.decode, key, value)


def _shown(decode: Callable[[bytes, bytes | None], Any], key: bytes, value: bytes | None) -> tuple[str, str] | None:
    record = decode(key, value)
    if record is None:
        return None
    kind = int.from_bytes(key[:2], "big")
    shown_key = _written({"type": str(kind), "data": _plain(record.key, 0)})
    if value is None:
        return shown_key, DELETED
    version = int.from_bytes(value[:2], "big")
    return shown_key, _written({"version": str(version), "data": _plain(record.value, version)})


def _written(document: object) -> str:
    return json.dumps(document, separators=(",", ":"), ensure_ascii=False)


def _plain(value: Any, version: int) -> Any:
    """A value in JSON's own types."""
    if isinstance(value, UUID):
        return uuid_to_text(value)
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, OffsetCommitKey):
        return value._asdict()
    if isinstance(value, OffsetCommitValue):
        return _struct(value, _fields_of_offset(value, version), version)
    schema = _SCHEMAS.get(type(value))
    if schema is None:
        if isinstance(value, tuple):
            return [_plain(each, version) for each in value]
        if not is_dataclass(value):
            return value
        return _struct(value, (field.name for field in fields(value)), version)
    shown = _struct(
        value,
        (
            item.name
            for item in schema.items
            if item.since <= version and (item.tag is None or getattr(value, item.name) != item.default)
        ),
        version,
    )
    if isinstance(value, GroupMetadataValue) and value.protocol_type == _CONSUMER:
        for member, told in zip(value.members, shown["members"], strict=True):
            told["subscription"] = _plain(_consumer_protocol("subscription", member.subscription), version)
            told["assignment"] = _plain(_consumer_protocol("assignment", member.assignment), version)
    return shown


def _struct(value: Any, names: Iterable[str], version: int) -> dict[str, Any]:
    return {_name(name): _plain(getattr(value, name), version) for name in names}


def _fields_of_offset(value: OffsetCommitValue, version: int) -> Iterator[str]:
    for name in value._fields:
        if version < _OFFSET_SINCE.get(name, 0) or (name == "expire_timestamp" and version != _EXPIRY_VERSION):
            continue
        if name != "topic_id" or value.topic_id is not None:
            yield name


def _consumer_protocol(kind: str, data: bytes) -> Any:
    """What a member told or was told; the bytes themselves if they are of no form that Kafka knows."""
    version = min(int.from_bytes(data[:2], "big", signed=True), _NEWEST_CONSUMER_PROTOCOL)
    if len(data) < bounds.VERSION_BYTES or version < 0:
        return data
    module = importlib.import_module(f"kio.schema.consumer_protocol_{kind}.v{version}.data")
    message = getattr(module, f"ConsumerProtocol{kind.title()}")
    try:
        return bounds.read(message, data, bounds.VERSION_BYTES, bounds.MAX_ELEMENTS)
    except InvalidFrame:
        return data


def _name(field: str) -> str:
    first, *rest = field.split("_")
    return first + "".join(map(str.title, rest))
