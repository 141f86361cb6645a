"""Offsets that go away by themselves: the old ones, and those of topics that are gone."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Final
from uuid import UUID

import pytest

from barnabas.machines.controller.image import ClusterImage, TopicImage
from barnabas.machines.groups.offsets import expiry
from barnabas.machines.groups.offsets.expiry import EXPIRE_TIMER, PURGE_TIMER
from barnabas.machines.groups.settings import GroupSettings
from barnabas.machines.outcome import Timer
from barnabas.protocol.coordinator_records import (
    CoordinatorRecord,
    GroupMetadataKey,
    OffsetCommitKey,
    OffsetCommitValue,
)
from barnabas.protocol.records.records import RECORD_OVERHEAD
from tests.unit.machines.groups.offsets.offset_requests import (
    ASKER,
    TOPIC_ID,
    FakeGroup,
    apply,
    commit_request,
    make_rules,
)

if TYPE_CHECKING:
    from barnabas.machines.groups.table import GroupOutcome

RETENTION_MS: Final = 1000
INTERVAL_MS: Final = 100
SETTINGS: Final = GroupSettings(offsets_retention_ms=RETENTION_MS, offsets_retention_check_interval_ms=INTERVAL_MS)
A0, A1, B0 = ("a", 0), ("a", 1), ("b", 0)


def _removed(outcome: GroupOutcome) -> list[tuple[str, int]]:
    assert all(record.value is None for record in outcome.changes)
    keys = (record.key for record in outcome.changes)
    return [(key.topic, key.partition) for key in keys if isinstance(key, OffsetCommitKey)]


def _groups_removed(outcome: GroupOutcome) -> list[str]:
    return [record.key.group for record in outcome.changes if isinstance(record.key, GroupMetadataKey)]


def test_old_offsets_are_looked_for_again_and_again() -> None:
    _, rules = make_rules(settings=SETTINGS)
    assert rules.loaded(50).timers == (Timer(EXPIRE_TIMER, 150),)
    assert rules.expire(EXPIRE_TIMER, 150).timers == (Timer(EXPIRE_TIMER, 250),)


def test_an_offset_goes_when_its_retention_is_over() -> None:
    _, rules = make_rules(FakeGroup(), settings=SETTINGS)
    apply(rules, rules.commit(commit_request({A0: 1}), ASKER, 0))
    apply(rules, rules.commit(commit_request({A1: 1}), ASKER, 1))
    assert rules.expire_offsets(RETENTION_MS - 1).changes == ()
    outcome = rules.expire_offsets(RETENTION_MS)
    assert _removed(outcome) == [A0]
    apply(rules, outcome)
    assert rules.offsets.committed == {"g": {"a": {1: OffsetCommitValue(1, -1, "", 1, -1, TOPIC_ID)}}}


def test_an_offset_in_use_stays() -> None:
    _, rules = make_rules(FakeGroup(subscribed=frozenset({"a"})), settings=SETTINGS)
    apply(rules, rules.commit(commit_request({A0: 1, B0: 1}), ASKER, 0))
    assert _removed(rules.expire_offsets(RETENTION_MS)) == [B0]


def test_an_offset_with_a_time_of_its_own_goes_by_that() -> None:
    _, rules = make_rules(FakeGroup(), settings=SETTINGS)
    apply(rules, rules.commit(commit_request({A0: 1}, retention=timedelta(milliseconds=10)), ASKER, 0))
    apply(rules, rules.commit(commit_request({B0: 1}, retention=timedelta(days=1)), ASKER, 0))
    assert _removed(rules.expire_offsets(9)) == []
    assert _removed(rules.expire_offsets(RETENTION_MS)) == [A0]


def test_an_offset_stays_while_a_transaction_is_about_to_change_it() -> None:
    _, rules = make_rules(FakeGroup(is_empty=True), settings=SETTINGS)
    apply(rules, rules.commit(commit_request({A0: 1}), ASKER, 0))
    rules.replay(CoordinatorRecord(OffsetCommitKey("g", "a", 0), OffsetCommitValue(2)), producer_id=1)
    assert rules.expire_offsets(RETENTION_MS).changes == ()
    rules.end_transaction(1, commit=False)
    assert _removed(rules.expire_offsets(RETENTION_MS)) == [A0]


def test_an_empty_group_goes_with_its_last_offset() -> None:
    _, rules = make_rules(FakeGroup(is_empty=True), settings=SETTINGS)
    apply(rules, rules.commit(commit_request({A0: 1}), ASKER, 0))
    assert _groups_removed(rules.expire_offsets(RETENTION_MS - 1)) == []
    outcome = rules.expire_offsets(RETENTION_MS)
    assert _removed(outcome) == [A0]
    assert _groups_removed(outcome) == ["g"]


@pytest.mark.parametrize("is_empty", [True, False])
def test_a_group_without_offsets_goes_if_it_has_no_members(is_empty: bool) -> None:
    _, rules = make_rules(FakeGroup(is_empty=is_empty), settings=SETTINGS)
    assert _groups_removed(rules.expire_offsets(0)) == (["g"] if is_empty else [])


def test_a_group_stays_while_a_transaction_is_about_to_commit_its_first_offset() -> None:
    _, rules = make_rules(FakeGroup(is_empty=True), settings=SETTINGS)
    rules.replay(CoordinatorRecord(OffsetCommitKey("g", "a", 0), OffsetCommitValue(2)), producer_id=1)
    assert rules.expire_offsets(RETENTION_MS).changes == ()


def test_a_round_with_much_to_remove_takes_several_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(expiry, "MAX_BYTES", 3 * (RECORD_OVERHEAD + 2))
    table, rules = make_rules(*(FakeGroup(name, is_empty=True) for name in "gh"), settings=SETTINGS)
    for name in "gh":
        apply(rules, rules.commit(commit_request({("a", p): 1 for p in range(5)}, group_id=name), ASKER, 0))
    groups: list[str] = []
    sizes: list[int] = []
    while True:
        outcome = rules.expire(EXPIRE_TIMER, RETENTION_MS)
        apply(rules, outcome)
        sizes.append(len(_removed(outcome)))
        for name in _groups_removed(outcome):
            groups.append(name)
            del table.groups[name]
        if outcome.timers != (Timer(EXPIRE_TIMER, RETENTION_MS),):
            break
    assert outcome.timers == (Timer(EXPIRE_TIMER, RETENTION_MS + INTERVAL_MS),)
    assert max(sizes) == 3
    assert sum(sizes) == 10
    assert sorted(groups) == ["g", "h"]


def test_a_round_with_much_to_look_at_takes_several_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(expiry, "MAX_LOOKED_AT", 1)
    _, rules = make_rules(FakeGroup("g"), FakeGroup("h"), settings=SETTINGS)
    assert rules.expire(EXPIRE_TIMER, 0).timers == (Timer(EXPIRE_TIMER, 0),)
    assert rules.expire(EXPIRE_TIMER, 0).timers == (Timer(EXPIRE_TIMER, INTERVAL_MS),)


def test_offsets_of_a_deleted_topic_go() -> None:
    _, rules = make_rules()
    for group in "gh":
        apply(rules, rules.commit(commit_request({A0: 1, B0: 1}, group_id=group), ASKER, 0))
    rules.replay(CoordinatorRecord(OffsetCommitKey("g", "a", 0), OffsetCommitValue(2)), producer_id=1)
    rules.replay(CoordinatorRecord(OffsetCommitKey("g", "a", 1), OffsetCommitValue(2)), producer_id=1)
    outcome = rules.topics_deleted({"a"}, 0)
    assert sorted(_removed(outcome)) == [A0, A0, A1]
    apply(rules, outcome)
    assert rules.offsets.pending == {}
    assert {topic for topics in rules.offsets.committed.values() for topic in topics} == {"b"}


def test_offsets_of_a_topic_that_was_made_again_stay() -> None:
    table, rules = make_rules()
    new_id = UUID(int=99)
    table.image = ClusterImage(topics={"a": TopicImage("a", new_id, ())})
    apply(rules, rules.commit(commit_request({A0: 1}), ASKER, 0))
    apply(rules, rules.commit(commit_request({A1: 1}, topic_id=new_id), ASKER, 0))
    assert _removed(rules.topics_deleted({"a"}, 0)) == [A0]


def test_many_offsets_of_a_deleted_topic_go_in_several_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(expiry, "MAX_BYTES", 3 * (RECORD_OVERHEAD + 2))
    _, rules = make_rules()
    apply(rules, rules.commit(commit_request({("a", p): 1 for p in range(5)}), ASKER, 0))
    outcome = rules.topics_deleted({"a"}, 7)
    assert outcome.timers == (Timer(PURGE_TIMER, 7),)
    apply(rules, outcome)
    outcome = rules.expire(PURGE_TIMER, 8)
    assert outcome.timers == ()
    apply(rules, outcome)
    assert rules.offsets.committed == {}
