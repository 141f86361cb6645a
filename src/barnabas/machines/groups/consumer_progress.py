"""What a member's request sets in motion: the group's epoch, the target assignment, and the member's own next step.

The three follow each other in that order, each from what the one before decided, and all of it is written as records;
nothing is changed here but what a reload would forget.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from barnabas.machines.groups.consumer_group import ResolvedRegex
from barnabas.machines.groups.consumer_member import current_record, member_record, removal_records
from barnabas.machines.groups.consumer_states import MemberState
from barnabas.machines.groups.metadata_hash import group_hash
from barnabas.machines.groups.patterns import MATCHES, compile_pattern, size_of
from barnabas.machines.groups.reconciliation import Reconciliation
from barnabas.machines.groups.table import TimerKey
from barnabas.machines.groups.target import Subscriptions, Target, make_target, may_assign
from barnabas.machines.outcome import Outcome
from barnabas.protocol.coordinator_records import (
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
    ConsumerGroupPartitionMetadataKey,
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupRegularExpressionValue,
    CoordinatorRecord,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Set

    from barnabas.machines.groups.consumer_group import ConsumerGroup
    from barnabas.machines.groups.consumer_member import Member, Partitions
    from barnabas.machines.groups.table import GroupDraft, GroupOutcome, GroupTable

SESSION: Final = "consumer.session"
REBALANCE: Final = "consumer.rebalance"
JOIN: Final = "consumer.join"
SYNC: Final = "consumer.sync"
"""Kinds of timers of a member: it must be heard of; must give partitions back; must join again; must sync."""

MIN_REFRESH_INTERVAL_MS: Final = 10_000
"""Patterns of a group are resolved no more often than this, and all at once, so they make one rebalance."""
MAX_SIZE_AT_ONCE: Final = 512
"""Patterns that are larger than this together, by their instructions, are resolved a part at a time, so they do not
hold up the broker: some thirty patterns of the usual kind."""


class Change(NamedTuple):
    """What a request changes before partitions are assigned."""

    epoch: int
    """The group's epoch after it."""
    subscription_changed: bool
    """Whether the member subscribes to something else than before."""
    subscriptions: Subscriptions
    """What all members subscribe to, with patterns as they are resolved after it."""
    compared: bool
    """Whether the group's hash was compared with that of the topics as they are."""


class Progress:
    """Moves the groups of one coordinator on."""

    def __init__(self, table: GroupTable) -> None:
        self._table = table
        self._topic_hashes: dict[str, int] = {}

    def forget_topics(self, names: Collection[str]) -> None:
        """These topics changed: their hashes are made anew."""
        for name in names:
            self._topic_hashes.pop(name, None)

    def hash_of(self, topics: Collection[str]) -> int:
        """The hash of a group that reads these topics."""
        return group_hash(topics, self._table.image, self._topic_hashes)

    def subscribe(self, group: ConsumerGroup, old: Member, new: Member, draft: GroupDraft, now_ms: int) -> Change:
        """Write that `old` became `new`, and raise the group's epoch if that changes what anybody is to read."""
        group_id = group.group_id
        if new is not old and new != old:
            draft.changes.append(member_record(group_id, new))
        resolved = self._resolve(group, old, new, draft, now_ms)
        names_changed = new.topics != old.topics
        regex_changed = new.regex != old.regex
        raises = (
            names_changed
            or (regex_changed and (not new.regex or new.regex in resolved))
            or any(found.topics != _topics(group.resolved, regex) for regex, found in resolved.items())
        )
        epoch = group.epoch
        compared = raises or not group.metadata_current
        if compared:
            topics = group.topics_without((old,), (new,)).union(*(found.topics for found in resolved.values()))
            hashed = self.hash_of(topics)
            if raises or hashed != group.metadata_hash:
                epoch += 1
                draft.changes.append(epoch_record(group_id, epoch, hashed))
            if group.has_partition_metadata:
                draft.changes.append(CoordinatorRecord(ConsumerGroupPartitionMetadataKey(group_id), None))
        return Change(epoch, names_changed or regex_changed, Subscriptions(self._table.image, resolved), compared)

    def target(
        self, group: ConsumerGroup, change: Change, old: Member, new: Member, draft: GroupDraft, now_ms: int
    ) -> Target:
        """What the member is to have: by a new target assignment if the epoch was raised and it is time for one."""
        settings = self._table.settings_of(group.group_id)
        if group.assignment_epoch >= change.epoch or not may_assign(
            group, settings.consumer_assignment_interval_ms, now_ms
        ):
            return self.last_target(group, new)
        assignor = group.preferred_assignor(old, new)
        if assignor not in settings.consumer_assignors:
            assignor = settings.consumer_assignors[0]
        target, records = make_target(
            group, change.epoch, new, change.subscriptions, self._table.image, assignor, now_ms
        )
        draft.changes.extend(records)
        return target

    def last_target(self, group: ConsumerGroup, member: Member) -> Target:
        """What the member is to have by the last target assignment."""
        return Target(group.assignment_epoch, group.target_of(member))

    def reconcile(
        self,
        group: ConsumerGroup,
        change: Change,
        target: Target,
        member: Member,
        owned: Partitions | None,
        draft: GroupDraft,
        now_ms: int,
    ) -> Member:
        """Take the member one step towards its target. It may still be fenced here; if not, the request stands."""
        after = member
        if change.subscription_changed or not member.is_reconciled_to(target.epoch):
            after = Reconciliation(
                target_epoch=target.epoch,
                target=target.partitions,
                owner_of=group.owner_of,
                is_subscribed=lambda topic_id: change.subscriptions.includes(member, topic_id),
                subscription_changed=change.subscription_changed,
                owned=owned,
            ).step(member)
        if change.compared:
            group.metadata_current = True
        if after is member or after == member:
            return member
        draft.changes.append(current_record(group.group_id, after))
        if after.classic is None:
            key = TimerKey(REBALANCE, group.group_id, after.member_id)
            if after.state is MemberState.UNREVOKED_PARTITIONS:
                draft.set_timer(key, now_ms + after.rebalance_timeout_ms)
            else:
                draft.cancel_timer(key)
        return after

    def remove(self, group: ConsumerGroup, members: Collection[Member], draft: GroupDraft) -> None:
        """Write that members are gone, and raise the group's epoch for it."""
        group_id = group.group_id
        for member in members:
            draft.changes.extend(removal_records(group_id, member.member_id))
        left = group.regexes.copy()
        left.subtract(member.regex for member in members if member.regex)
        for regex in sorted(regex for regex, count in left.items() if count <= 0):
            draft.changes.append(CoordinatorRecord(ConsumerGroupRegularExpressionKey(group_id, regex), None))
        topics = group.topics_without(members)
        for regex, found in group.resolved.items():
            if left[regex] > 0:
                topics |= found.topics
        hashed = self.hash_of(topics)
        draft.changes.append(epoch_record(group_id, group.epoch + 1, hashed))
        for member in members:
            cancel_timers(group_id, member.member_id, draft)

    def _resolve(
        self, group: ConsumerGroup, old: Member, new: Member, draft: GroupDraft, now_ms: int
    ) -> Mapping[str, ResolvedRegex]:
        """The patterns of the group with the topics that they match, resolved anew if it is time for that."""
        if not group.regexes and not new.regex:
            return group.resolved
        regexes = group.regexes.copy()
        if old.regex != new.regex:
            regexes.subtract([old.regex])
            regexes.update([new.regex])
        subscribed = sorted(regex for regex, count in regexes.items() if regex and count > 0)
        resolved = {regex: found for regex, found in group.resolved.items() if regex in subscribed}
        if old.regex and old.regex not in subscribed:
            draft.changes.append(CoordinatorRecord(ConsumerGroupRegularExpressionKey(group.group_id, old.regex), None))
        if new.regex and new.regex not in group.regexes:
            compile_pattern(new.regex)
        last_ms = max((found.timestamp for found in resolved.values()), default=None)
        if last_ms is not None and now_ms <= last_ms + MIN_REFRESH_INTERVAL_MS:
            return resolved
        interval_ms = self._table.settings_of(group.group_id).consumer_regex_refresh_interval_ms
        is_due = any(
            (found := resolved.get(regex)) is None
            or regex in group.stale_regexes
            or now_ms > found.timestamp + interval_ms
            for regex in subscribed
        )
        if not is_due:
            return resolved
        for regex in _first(subscribed, resolved, group.stale_regexes):
            found = ResolvedRegex(MATCHES.among(regex, self._table.image.topics), now_ms, now_ms)
            resolved[regex] = found
            draft.changes.append(
                CoordinatorRecord(
                    ConsumerGroupRegularExpressionKey(group.group_id, regex),
                    ConsumerGroupRegularExpressionValue(tuple(sorted(found.topics)), found.version, found.timestamp),
                )
            )
        return resolved


def compare_again(group: ConsumerGroup) -> GroupOutcome:
    """A request came to nothing: whether the topics changed is still to be seen to."""
    group.metadata_current = False
    return Outcome()


def cancel_timers(group_id: str, member_id: str, draft: GroupDraft) -> None:
    """Wait for nothing from a member any more."""
    for kind in (SESSION, REBALANCE, JOIN, SYNC):
        draft.cancel_timer(TimerKey(kind, group_id, member_id))


def _first(regexes: Iterable[str], resolved: Mapping[str, ResolvedRegex], stale: Set[str]) -> list[str]:
    """The patterns that are resolved now: all, or those that need it most if all are too much at once."""

    def need(regex: str) -> tuple[bool, int]:
        found = resolved.get(regex)
        return found is not None and regex not in stale, -1 if found is None else found.timestamp

    first: list[str] = []
    size = 0
    for regex in sorted(regexes, key=need):
        size += size_of(regex)
        if first and size > MAX_SIZE_AT_ONCE:
            break
        first.append(regex)
    return first


def _topics(resolved: Mapping[str, ResolvedRegex], regex: str) -> frozenset[str]:
    found = resolved.get(regex)
    return frozenset() if found is None else found.topics


def epoch_record(group_id: str, epoch: int, hashed: int) -> CoordinatorRecord:
    """The epoch of a group, and the hash of the topics that it was raised for."""
    return CoordinatorRecord(ConsumerGroupMetadataKey(group_id), ConsumerGroupMetadataValue(epoch, hashed))
