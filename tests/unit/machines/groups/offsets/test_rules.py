"""Committed offsets: who may commit, what is stored, what is told, what is deleted."""

from __future__ import annotations

from datetime import timedelta
from uuid import UUID

import pytest

from barnabas.machines.groups.classic.group import ClassicGroup
from barnabas.machines.groups.classic.members import ClassicMember
from barnabas.machines.groups.classic.rebalance import SESSION_TIMER
from barnabas.machines.groups.settings import GroupSettings
from barnabas.machines.groups.table import TimerKey
from barnabas.machines.outcome import Timer
from barnabas.model.errors import (
    ErrorCode,
    GroupIdNotFound,
    NonEmptyGroup,
    StaleMemberEpoch,
    UnknownMemberId,
)
from barnabas.protocol.coordinator_records import (
    ClassicProtocol,
    CoordinatorRecord,
    OffsetCommitKey,
    OffsetCommitValue,
)
from tests.unit.machines.groups.offsets.offset_requests import (
    ASKER,
    TOPIC_ID,
    FakeAsker,
    FakeGroup,
    apply,
    commit_codes,
    commit_request,
    delete_request,
    fetch_request,
    fetched_offsets,
    make_rules,
)

A0, A1, B0 = ("a", 0), ("a", 1), ("b", 0)


def test_a_commit_is_a_record_for_each_partition() -> None:
    _, rules = make_rules()
    outcome = rules.commit(commit_request({A0: 5, A1: 6}, metadata="m", leader_epoch=3), ASKER, 1000)
    assert outcome.changes == (
        CoordinatorRecord(OffsetCommitKey("g", "a", 0), OffsetCommitValue(5, 3, "m", 1000, -1, TOPIC_ID)),
        CoordinatorRecord(OffsetCommitKey("g", "a", 1), OffsetCommitValue(6, 3, "m", 1000, -1, TOPIC_ID)),
    )
    assert rules.offsets.committed == {}
    assert commit_codes(apply(rules, outcome)) == {A0: ErrorCode.none, A1: ErrorCode.none}
    assert rules.offsets.get(OffsetCommitKey("g", "a", 1)) == OffsetCommitValue(6, 3, "m", 1000, -1, TOPIC_ID)


def test_the_first_commit_of_a_simple_consumer_makes_a_group() -> None:
    table, rules = make_rules()
    apply(rules, rules.commit(commit_request({A0: 5}), ASKER, 0))
    group = table.groups["g"]
    assert isinstance(group, ClassicGroup)
    assert group.is_empty
    assert group.protocol_type is None


@pytest.mark.parametrize(("version", "code"), [(8, ErrorCode.illegal_generation), (9, ErrorCode.group_id_not_found)])
def test_a_member_cannot_commit_to_a_group_that_is_not_there(version: int, code: ErrorCode) -> None:
    _, rules = make_rules()
    request = commit_request({A0: 5, B0: 1}, epoch=1, member_id="m")
    outcome = rules.commit(request, FakeAsker(version=version), 0)
    assert outcome.changes == ()
    assert commit_codes(apply(rules, outcome)) == {A0: code, B0: code}


def test_a_group_checks_who_commits() -> None:
    group = FakeGroup(refusal=UnknownMemberId("no"))
    _, rules = make_rules(group)
    outcome = rules.commit(commit_request({A0: 5}, epoch=4, member_id="m"), ASKER, 0)
    assert group.seen == [("m", None, 4, 9)]
    assert outcome.changes == ()
    assert commit_codes(apply(rules, outcome)) == {A0: ErrorCode.unknown_member_id}


def test_a_partition_that_may_not_be_committed_refuses_the_whole_commit() -> None:
    def check(topic: str, topic_id: UUID | None, partition: int) -> None:
        assert topic_id == TOPIC_ID
        if partition == 1:
            raise StaleMemberEpoch("no")

    _, rules = make_rules(FakeGroup(commit_check=check))
    outcome = rules.commit(commit_request({A0: 5, A1: 6}, epoch=4, member_id="m"), ASKER, 0)
    assert outcome.changes == ()
    assert set(commit_codes(apply(rules, outcome)).values()) == {ErrorCode.stale_member_epoch}


@pytest.mark.parametrize(
    ("metadata", "fits"), [("m" * 10, True), ("m" * 11, False), ("ü" * 10, True), ("𝄞" * 5, True), ("𝄞" * 6, False)]
)
def test_metadata_has_a_limit(metadata: str, fits: bool) -> None:
    _, rules = make_rules(settings=GroupSettings(offset_metadata_max_bytes=10))
    outcome = rules.commit(commit_request({A0: 5}, metadata=metadata), ASKER, 0)
    assert bool(outcome.changes) is fits
    code = ErrorCode.none if fits else ErrorCode.offset_metadata_too_large
    assert commit_codes(apply(rules, outcome)) == {A0: code}


@pytest.mark.parametrize("metadata", ["m" * 32768, "€" * 10923])
def test_no_setting_lets_metadata_outgrow_a_record(metadata: str) -> None:
    _, rules = make_rules(settings=GroupSettings(offset_metadata_max_bytes=1_000_000))
    outcome = rules.commit(commit_request({A0: 5}, metadata=metadata), ASKER, 0)
    assert commit_codes(apply(rules, outcome)) == {A0: ErrorCode.offset_metadata_too_large}


def test_an_old_client_says_itself_how_long_an_offset_is_kept() -> None:
    _, rules = make_rules()
    request = commit_request({A0: 5}, retention=timedelta(seconds=2))
    (record,) = rules.commit(request, FakeAsker(version=4), 1000).changes
    assert record.value == OffsetCommitValue(5, -1, "", 1000, 3000, None)


def test_a_commit_keeps_the_session_of_a_classic_member_alive() -> None:
    table, rules = make_rules()
    member = ClassicMember(
        member_id="m",
        instance_id=None,
        client_id="c",
        client_host="/h",
        rebalance_timeout_ms=1,
        session_timeout_ms=10_000,
        protocols=(ClassicProtocol("range", b""),),
    )
    table.groups["g"] = ClassicGroup.of_members("g", 3, "consumer", [member], 0)
    outcome = rules.commit(commit_request({A0: 5}, epoch=3, member_id="m"), ASKER, 500)
    assert outcome.timers == (Timer(TimerKey(SESSION_TIMER, "g", "m"), 10_500),)
    refused = rules.commit(commit_request({A0: 5}, epoch=2, member_id="m"), ASKER, 500)
    assert refused.timers == ()


def test_offsets_are_told_with_their_epoch_and_metadata() -> None:
    _, rules = make_rules()
    apply(rules, rules.commit(commit_request({A0: 5}, metadata="m", leader_epoch=3), ASKER, 0))
    response = apply(rules, rules.fetch(fetch_request([A0, A1, B0]), ASKER, 0, require_stable=False))
    assert response.error_code is ErrorCode.none
    assert fetched_offsets(
        response, lambda p: (p.committed_offset, p.committed_leader_epoch, p.metadata, p.error_code)
    ) == {
        A0: (5, 3, "m", ErrorCode.none),
        A1: (-1, -1, "", ErrorCode.none),
        B0: (-1, -1, "", ErrorCode.none),
    }


def test_all_offsets_of_a_group_can_be_asked_for() -> None:
    _, rules = make_rules()
    apply(rules, rules.commit(commit_request({A0: 5, A1: 6, B0: 7}), ASKER, 0))
    apply(rules, rules.commit(commit_request({A0: 9}, group_id="other"), ASKER, 0))
    response = apply(rules, rules.fetch(fetch_request(None), ASKER, 0, require_stable=True))
    assert fetched_offsets(response) == {A0: 5, A1: 6, B0: 7}


def test_a_group_that_is_not_there_has_no_offsets() -> None:
    _, rules = make_rules()
    assert fetched_offsets(apply(rules, rules.fetch(fetch_request([A0]), ASKER, 0, require_stable=False))) == {A0: -1}
    response = apply(rules, rules.fetch(fetch_request(None), ASKER, 0, require_stable=False))
    assert (response.topics, response.error_code) == ((), ErrorCode.none)


def test_a_dead_group_has_no_offsets() -> None:
    group = FakeGroup()
    _, rules = make_rules(group)
    apply(rules, rules.commit(commit_request({A0: 5}), ASKER, 0))
    group.refusal = GroupIdNotFound("dead")
    assert fetched_offsets(apply(rules, rules.fetch(fetch_request([A0]), ASKER, 0, require_stable=False))) == {A0: -1}


def test_a_member_that_is_behind_is_refused() -> None:
    group = FakeGroup(refusal=StaleMemberEpoch("no"))
    _, rules = make_rules(group)
    outcome = rules.fetch(fetch_request([A0], member_id="m", epoch=3), ASKER, 0, require_stable=False)
    response = apply(rules, outcome)
    assert group.seen == [("m", 3)]
    assert (response.topics, response.error_code) == ((), ErrorCode.stale_member_epoch)


def test_offsets_of_a_deleted_topic_are_not_told_for_its_successor() -> None:
    _, rules = make_rules()
    apply(rules, rules.commit(commit_request({A0: 5}), ASKER, 0))
    apply(rules, rules.commit(commit_request({A1: 6}, topic_id=None), ASKER, 0))
    successor = fetch_request([A0, A1], topic_id=UUID(int=8))
    assert fetched_offsets(apply(rules, rules.fetch(successor, ASKER, 0, require_stable=False))) == {A0: -1, A1: 6}
    same = fetch_request([A0, A1], topic_id=TOPIC_ID)
    assert fetched_offsets(apply(rules, rules.fetch(same, ASKER, 0, require_stable=False))) == {A0: 5, A1: 6}


def test_offsets_are_deleted_unless_their_topic_is_read() -> None:
    group = FakeGroup(subscribed=frozenset({"b"}))
    _, rules = make_rules(group)
    apply(rules, rules.commit(commit_request({A0: 5, B0: 7}), ASKER, 0))
    outcome = rules.delete(delete_request([A0, A1, B0]), ASKER, 0)
    assert outcome.changes == (CoordinatorRecord(OffsetCommitKey("g", "a", 0), None),)
    response = apply(rules, outcome)
    assert response.error_code is ErrorCode.none
    assert commit_codes(response) == {
        A0: ErrorCode.none,
        A1: ErrorCode.none,
        B0: ErrorCode.group_subscribed_to_topic,
    }
    assert rules.offsets.committed.keys() == {"g"}
    assert rules.offsets.committed["g"].keys() == {"b"}


def test_a_group_may_refuse_to_have_offsets_deleted() -> None:
    _, rules = make_rules(FakeGroup(refusal=NonEmptyGroup("no")))
    response = apply(rules, rules.delete(delete_request([A0]), ASKER, 0))
    assert (response.error_code, response.topics) == (ErrorCode.non_empty_group, ())
    response = apply(rules, rules.delete(delete_request([A0], "missing"), ASKER, 0))
    assert response.error_code is ErrorCode.group_id_not_found


def _record(offset: int, topic: str = "a") -> CoordinatorRecord:
    return CoordinatorRecord(OffsetCommitKey("g", topic, 0), OffsetCommitValue(offset))


def test_an_offset_of_a_transaction_counts_when_it_is_committed() -> None:
    _, rules = make_rules()
    rules.replay(_record(5), producer_id=1)
    rules.replay(_record(6, "b"), producer_id=2)
    fetch = fetch_request([A0, B0])
    assert fetched_offsets(apply(rules, rules.fetch(fetch, ASKER, 0, require_stable=False))) == {A0: -1, B0: -1}
    unstable = apply(rules, rules.fetch(fetch, ASKER, 0, require_stable=True))
    assert set(fetched_offsets(unstable, lambda p: p.error_code).values()) == {ErrorCode.unstable_offset_commit}
    rules.end_transaction(1, commit=True)
    rules.end_transaction(2, commit=False)
    rules.end_transaction(3, commit=True)
    assert fetched_offsets(apply(rules, rules.fetch(fetch, ASKER, 0, require_stable=True))) == {A0: 5, B0: -1}


def test_the_commit_that_stands_later_in_the_log_wins() -> None:
    _, rules = make_rules()
    rules.replay(_record(5), producer_id=1)
    rules.replay(_record(6))
    rules.end_transaction(1, commit=True)
    assert rules.offsets.get(OffsetCommitKey("g", "a", 0)) == OffsetCommitValue(6)


def test_of_two_transactions_the_later_offset_wins_in_whatever_order_they_end() -> None:
    for first, second in ((1, 2), (2, 1)):
        _, rules = make_rules()
        rules.replay(_record(5), producer_id=1)
        rules.replay(_record(6), producer_id=2)
        rules.end_transaction(first, commit=True)
        assert rules.offsets.is_open(OffsetCommitKey("g", "a", 0))
        rules.end_transaction(second, commit=True)
        assert rules.offsets.get(OffsetCommitKey("g", "a", 0)) == OffsetCommitValue(6)
        assert not rules.offsets.is_open(OffsetCommitKey("g", "a", 0))


def test_a_deleted_offset_takes_pending_ones_along() -> None:
    _, rules = make_rules()
    rules.replay(_record(5), producer_id=1)
    assert len(rules.delete(delete_request([A0]), ASKER, 0).changes) == 1
    apply(rules, rules.delete(delete_request([A0]), ASKER, 0))
    rules.end_transaction(1, commit=True)
    assert rules.offsets.committed == {}
    assert rules.offsets.pending == {}


def test_a_group_that_is_deleted_loses_all_its_offsets_once() -> None:
    _, rules = make_rules()
    apply(rules, rules.commit(commit_request({A0: 5, A1: 6}), ASKER, 0))
    rules.replay(_record(7), producer_id=1)
    rules.replay(_record(8, "b"), producer_id=1)
    tombstones = rules.tombstones("g", 100)
    assert sorted(record.key for record in tombstones if isinstance(record.key, OffsetCommitKey)) == [
        OffsetCommitKey("g", "a", 0),
        OffsetCommitKey("g", "a", 1),
        OffsetCommitKey("g", "b", 0),
    ]
    for record in tombstones:
        rules.replay(record)
    assert (rules.offsets.committed, rules.offsets.pending) == ({}, {})
    assert rules.tombstones("g", 100) == ()
