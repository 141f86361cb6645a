"""Any record of a group is read as it was written, and no bytes do more than raise a clear error."""

from __future__ import annotations

from contextlib import suppress
from itertools import permutations
from typing import Final
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.model.errors import InvalidRecord
from barnabas.protocol import coordinator_records
from barnabas.protocol.coordinator_records import (
    ConsumerGroupMemberMetadataValue,
    CoordinatorRecord,
    CurrentTopicPartitions,
    GroupMetadataValue,
    Key,
    MemberMetadata,
    OffsetCommitKey,
    OffsetCommitValue,
    PartitionMetadata,
    ShareTopicInfo,
    ShareTopicPartitionsInfo,
    TargetTopicPartitions,
    TopicMetadata,
    Value,
    decode,
    encode,
    encode_by_schema,
)
from barnabas.protocol.coordinator_records.by_hand import PACKERS
from barnabas.protocol.coordinator_records.member_metadata import packed_by_hand
from barnabas.protocol.coordinator_records.schemas import MEMBER_METADATA, RECORD_TYPES

TEXT: Final = st.text(st.characters(exclude_categories=["Cs"]), max_size=50)
INT8: Final = st.integers(-(2**7), 2**7 - 1)
INT32: Final = st.integers(-(2**31), 2**31 - 1)
INT64: Final = st.integers(-(2**63), 2**63 - 1)
INTS: Final = st.lists(INT32, max_size=5).map(tuple)
IDS: Final = st.uuids()
OPTIONAL_TEXT: Final = st.none() | TEXT
TEXTS: Final = st.lists(TEXT, max_size=4).map(tuple)

MEMBERS: Final = st.builds(
    MemberMetadata, TEXT, OPTIONAL_TEXT, TEXT, TEXT, INT32, INT32, st.binary(max_size=200), st.binary(max_size=200)
)
CLASSIC: Final = st.builds(
    coordinator_records.ClassicMemberMetadata,
    INT32,
    st.lists(st.builds(coordinator_records.ClassicProtocol, TEXT, st.binary(max_size=200)), max_size=3).map(tuple),
)
CURRENT: Final = st.lists(st.builds(CurrentTopicPartitions, IDS, INTS, st.none() | INTS), max_size=3).map(tuple)
TARGET: Final = st.lists(st.builds(TargetTopicPartitions, IDS, INTS), max_size=3).map(tuple)
RACKS: Final = st.lists(st.builds(PartitionMetadata, INT32, TEXTS), max_size=3).map(tuple)
TOPICS: Final = st.lists(st.builds(TopicMetadata, IDS, TEXT, INT32, RACKS), max_size=3).map(tuple)

STATES: Final = st.lists(st.builds(ShareTopicPartitionsInfo, IDS, TEXT, INTS), max_size=3).map(tuple)
DELETING: Final = st.lists(st.builds(ShareTopicInfo, IDS, TEXT), max_size=3).map(tuple)

PAIRS: Final[tuple[tuple[st.SearchStrategy[Key], st.SearchStrategy[Value]], ...]] = (
    (
        st.builds(OffsetCommitKey, TEXT, TEXT, INT32),
        st.builds(OffsetCommitValue, INT64, INT32, TEXT, INT64, st.just(-1), st.none() | IDS),
    ),
    (
        st.builds(OffsetCommitKey, TEXT, TEXT, INT32),
        st.builds(OffsetCommitValue, INT64, st.just(-1), TEXT, INT64, INT64, st.none()),
    ),
    (
        st.builds(coordinator_records.GroupMetadataKey, TEXT),
        st.builds(
            GroupMetadataValue,
            TEXT,
            INT32,
            OPTIONAL_TEXT,
            OPTIONAL_TEXT,
            INT64,
            st.lists(MEMBERS, max_size=3).map(tuple),
        ),
    ),
    (
        st.builds(coordinator_records.ConsumerGroupMetadataKey, TEXT),
        st.builds(coordinator_records.ConsumerGroupMetadataValue, INT32, INT64),
    ),
    (
        st.builds(coordinator_records.ConsumerGroupPartitionMetadataKey, TEXT),
        st.builds(coordinator_records.ConsumerGroupPartitionMetadataValue, TOPICS),
    ),
    (
        st.builds(coordinator_records.ConsumerGroupMemberMetadataKey, TEXT, TEXT),
        st.builds(
            ConsumerGroupMemberMetadataValue,
            OPTIONAL_TEXT,
            OPTIONAL_TEXT,
            TEXT,
            TEXT,
            TEXTS,
            OPTIONAL_TEXT,
            INT32,
            OPTIONAL_TEXT,
            st.none() | CLASSIC,
        ),
    ),
    (
        st.builds(coordinator_records.ConsumerGroupTargetAssignmentMetadataKey, TEXT),
        st.builds(coordinator_records.ConsumerGroupTargetAssignmentMetadataValue, INT32, INT64),
    ),
    (
        st.builds(coordinator_records.ConsumerGroupTargetAssignmentMemberKey, TEXT, TEXT),
        st.builds(coordinator_records.ConsumerGroupTargetAssignmentMemberValue, TARGET),
    ),
    (
        st.builds(coordinator_records.ConsumerGroupCurrentMemberAssignmentKey, TEXT, TEXT),
        st.builds(coordinator_records.ConsumerGroupCurrentMemberAssignmentValue, INT32, INT32, INT8, CURRENT, CURRENT),
    ),
    (
        st.builds(coordinator_records.ConsumerGroupRegularExpressionKey, TEXT, TEXT),
        st.builds(coordinator_records.ConsumerGroupRegularExpressionValue, TEXTS, INT64, INT64),
    ),
    (
        st.builds(coordinator_records.ShareGroupMemberMetadataKey, TEXT, TEXT),
        st.builds(coordinator_records.ShareGroupMemberMetadataValue, OPTIONAL_TEXT, TEXT, TEXT, TEXTS),
    ),
    (
        st.builds(coordinator_records.ShareGroupCurrentMemberAssignmentKey, TEXT, TEXT),
        st.builds(coordinator_records.ShareGroupCurrentMemberAssignmentValue, INT32, INT32, INT8, TARGET),
    ),
    (
        st.builds(coordinator_records.ShareGroupStatePartitionMetadataKey, TEXT),
        st.builds(coordinator_records.ShareGroupStatePartitionMetadataValue, STATES, STATES, DELETING),
    ),
)
RECORDS: Final = st.one_of(*(st.builds(CoordinatorRecord, key, st.none() | value) for key, value in PAIRS))


@given(RECORDS)
def test_a_record_is_read_as_it_was_written(record: CoordinatorRecord) -> None:
    found = decode(*encode(record))
    if (
        isinstance(record.value, OffsetCommitValue)
        and record.value.topic_id is not None
        and not record.value.topic_id.int
    ):
        record = record._replace(value=record.value._replace(topic_id=None))
    assert found == record
    assert found is not None
    assert type(found.key) is type(record.key)


@given(RECORDS, st.data())
def test_damaged_bytes_only_raise(record: CoordinatorRecord, data: st.DataObject) -> None:
    key, value = encode(record)
    damaged = bytearray(key + (value or b""))
    for _ in range(data.draw(st.integers(1, 4))):
        damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    with suppress(InvalidRecord):
        decode(bytes(damaged[: len(key)]), None if value is None else bytes(damaged[len(key) :]))


@given(RECORDS)
def test_records_are_packed_by_hand_as_by_their_schemas(record: CoordinatorRecord) -> None:
    if isinstance(record.key, OffsetCommitKey):
        return
    (record_type,) = (each for each in RECORD_TYPES if each.key.of is type(record.key))
    key_by_schema = bytearray(record_type.number.to_bytes(2, "big"))
    record_type.key.write(key_by_schema, record.key, False)
    value = None if record.value is None else encode_by_schema(record_type.value, record.value)
    assert encode(record) == (bytes(key_by_schema), value)


@given(st.data())
def test_all_values_that_are_packed_by_hand_are_compared(data: st.DataObject) -> None:
    assert PACKERS.keys() <= {type(data.draw(value)) for _, value in PAIRS}


@pytest.mark.parametrize("sizes", [(126, 127, 128), (31, 32, 16_383), (8_191, 8_192, 32_767)])
def test_long_texts_and_assignments_are_packed_as_by_their_schemas(sizes: tuple[int, ...]) -> None:
    for size in sizes:
        topic = UUID(int=size)
        for value in (
            ConsumerGroupMemberMetadataValue("x" * size, None, "ä" * (size // 2), "", ("x" * size,), "", 1, None),
            coordinator_records.ConsumerGroupCurrentMemberAssignmentValue(
                1, 0, 0, (CurrentTopicPartitions(topic, tuple(range(size)), (7,) * size),), ()
            ),
            coordinator_records.ConsumerGroupTargetAssignmentMemberValue(
                (TargetTopicPartitions(topic, tuple(range(size))),)
            ),
        ):
            (record_type,) = (each for each in RECORD_TYPES if each.value.of is type(value))
            key = record_type.key.of("group", "x" * size)
            assert encode(CoordinatorRecord(key, value))[1] == encode_by_schema(record_type.value, value)
            assert decode(*encode(CoordinatorRecord(key, value))) == CoordinatorRecord(key, value)


def test_a_name_that_is_too_long_for_a_record_is_refused() -> None:
    long = "x" * 32_768
    for key in (
        coordinator_records.ConsumerGroupMetadataKey(long),
        coordinator_records.ConsumerGroupMemberMetadataKey("", long),
    ):
        with pytest.raises(InvalidRecord, match="no more than"):
            encode(CoordinatorRecord(key, None))
    for place in range(4):
        texts = ["", "", "", ""]
        texts[place] = long
        value = ConsumerGroupMemberMetadataValue(texts[0], texts[1], texts[2], texts[3], (), None, 1, None)
        with pytest.raises(InvalidRecord, match="no more than"):
            encode(CoordinatorRecord(coordinator_records.ConsumerGroupMemberMetadataKey("", ""), value))


@given(MEMBERS)
def test_a_member_is_packed_by_hand_as_by_its_schema(member: MemberMetadata) -> None:
    by_hand, by_schema = bytearray(b"before"), bytearray(b"before")
    packed_by_hand(MEMBER_METADATA).write(by_hand, member, False)
    MEMBER_METADATA.write(by_schema, member, False)
    assert by_hand == by_schema


def test_a_member_with_a_text_that_is_too_long_for_a_record_is_refused() -> None:
    for texts in permutations(["x" * 32_768, "", ""]):
        member_id, client_id, client_host = texts
        member = MemberMetadata(member_id, None, client_id, client_host, 1, 1, b"", b"")
        with pytest.raises(InvalidRecord, match="no more than"):
            packed_by_hand(MEMBER_METADATA).write(bytearray(), member, False)
