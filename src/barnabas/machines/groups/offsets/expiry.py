"""How committed offsets expire: when they were not used for offsets.retention.minutes, or their topic was deleted.

One pass removes no more than fits into one batch and looks at no more than a loop may be held up for; the timer for the
rest is then due at once. What is left to do is soft state: a coordinator that is loaded again checks all groups,
and offsets of deleted topics that a stop left behind go when they are old.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from barnabas.machines.groups.table import TimerKey
from barnabas.machines.outcome import Draft
from barnabas.protocol.coordinator_records import CoordinatorRecord, OffsetCommitKey, OffsetCommitValue
from barnabas.protocol.records.records import RECORD_OVERHEAD

if TYPE_CHECKING:
    from collections.abc import Collection

    from barnabas.machines.groups.offsets.table import OffsetTable
    from barnabas.machines.groups.table import Group, GroupDraft, GroupOutcome, GroupTable

EXPIRE_TIMER: Final = TimerKey("offsets.expire", "")
PURGE_TIMER: Final = TimerKey("offsets.purge", "")

MAX_BYTES: Final = 256 * 1024
"""How large the keys of one pass may be together; a batch of the log takes 1 MiB unless its settings say otherwise."""
MAX_LOOKED_AT: Final = 20_000
"""How many offsets one pass looks at, or some more: 10 ms of work."""


class OffsetExpiry:
    """What is left to remove."""

    def __init__(self, table: GroupTable, offsets: OffsetTable) -> None:
        self._table = table
        self._offsets = offsets
        self._unchecked: list[str] = []
        """Groups that this round has not come to."""
        self._deleted_topics: set[str] = set()
        """Topics whose offsets are not all removed."""

    def loaded(self, now_ms: int) -> GroupOutcome:
        """Begin."""
        draft: GroupDraft = Draft()
        draft.set_timer(EXPIRE_TIMER, now_ms + self._table.settings.offsets_retention_check_interval_ms)
        return draft.outcome()

    def expire(self, key: TimerKey, now_ms: int) -> GroupOutcome:
        """A timer is due."""
        return self._purge(now_ms) if key == PURGE_TIMER else self.expire_offsets(now_ms)

    def expire_offsets(self, now_ms: int) -> GroupOutcome:
        """Remove old offsets, and groups that have neither offsets nor members; a new round, or the rest of one."""
        unchecked = self._unchecked or list(self._table.groups)
        one_pass = _Pass()
        while unchecked and not one_pass.is_over:
            group = self._table.groups.get(unchecked.pop())
            if group is not None and not self._expire_group(group, now_ms, one_pass):
                unchecked.append(group.group_id)
        self._unchecked = unchecked
        interval_ms = 0 if unchecked else self._table.settings.offsets_retention_check_interval_ms
        one_pass.draft.set_timer(EXPIRE_TIMER, now_ms + interval_ms)
        return one_pass.outcome()

    def topics_deleted(self, names: Collection[str], now_ms: int) -> GroupOutcome:
        """Remove the offsets of these topics."""
        self._deleted_topics.update(names)
        return self._purge(now_ms)

    def _expire_group(self, group: Group, now_ms: int, one_pass: _Pass) -> bool:
        """Remove old offsets of a group, and the group itself if none are left; False if the pass is over before."""
        group_id = group.group_id
        retention_ms = self._table.settings_of(group_id).offsets_retention_ms
        open_keys = self._offsets.open_keys(group_id)
        used = bool(open_keys)
        for topic, partitions in self._offsets.topics(group_id).items():
            one_pass.looked_at += len(partitions)
            for partition, value in partitions.items():
                if not _is_old(group, topic, value, now_ms, retention_ms):
                    used = True
                elif (key := OffsetCommitKey(group_id, topic, partition)) not in open_keys:
                    one_pass.remove(key)
                    if one_pass.is_full:
                        return False
        if not used and group.is_empty and group.may_expire:
            one_pass.draft.changes += group.tombstones()
        one_pass.looked_at += 1
        return True

    def _purge(self, now_ms: int) -> GroupOutcome:
        one_pass = _Pass()
        removed: set[OffsetCommitKey] = set()
        for key, value in self._offsets.of_topics(self._deleted_topics):
            if key in removed or not self._is_of_deleted_topic(key.topic, value):
                continue
            removed.add(key)
            one_pass.remove(key)
            if one_pass.is_full:
                one_pass.draft.set_timer(PURGE_TIMER, now_ms)
                break
        else:
            self._deleted_topics.clear()
        return one_pass.outcome()

    def _is_of_deleted_topic(self, name: str, value: OffsetCommitValue) -> bool:
        """Whether it is not of a topic that was made since under the same name."""
        topic = self._table.image.topic(name)
        return topic is None or value.topic_id != topic.topic_id


class _Pass:
    """What one pass has done."""

    def __init__(self) -> None:
        self.draft: GroupDraft = Draft()
        self.looked_at = 0
        self._bytes = 0

    def remove(self, key: OffsetCommitKey) -> None:
        """Remove an offset."""
        self.draft.changes.append(CoordinatorRecord(key, None))
        self._bytes += len(key.group.encode()) + len(key.topic) + RECORD_OVERHEAD

    def outcome(self) -> GroupOutcome:
        """What was decided; each offset is removed for itself."""
        return replace(self.draft.outcome(), is_divisible=True)

    @property
    def is_full(self) -> bool:
        """Whether the batch takes no more."""
        return self._bytes >= MAX_BYTES

    @property
    def is_over(self) -> bool:
        """Whether to go on in another pass."""
        return self.is_full or self.looked_at >= MAX_LOOKED_AT


def _is_old(group: Group, topic: str, value: OffsetCommitValue, now_ms: int, retention_ms: int) -> bool:
    since_ms = group.offsets_unused_since(value.commit_timestamp, topic)
    if since_ms is None:
        return False
    if value.expire_timestamp != -1:
        return now_ms >= value.expire_timestamp
    return now_ms - since_ms >= retention_ms
