"""How a consumer group rebalances: the group epoch, the target assignment, and the member's next step towards it.

A member's request may raise the group epoch. A new group epoch leads to a new target assignment, and that to a new
member epoch and assignment. All of it is written as records; only state that is not stored is changed here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from barnabas.machines.groups.consumer.group import ResolvedRegex
from barnabas.machines.groups.consumer.member import (
    NOTHING,
    current_record,
    member_record,
    removal_records,
)
from barnabas.machines.groups.consumer.metadata_hash import group_hash
from barnabas.machines.groups.consumer.patterns import MATCHES, compile_pattern, size_of
from barnabas.machines.groups.consumer.reconciliation import Reconciliation
from barnabas.machines.groups.consumer.states import MemberState
from barnabas.machines.groups.consumer.target import Subscriptions, Target, make_target, may_assign
from barnabas.machines.groups.table import TimerKey
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
    from collections.abc import Callable, Collection, Iterable, Mapping, Set

    from barnabas.machines.groups.assignors.spec import Partitions
    from barnabas.machines.groups.consumer.group import ConsumerGroup
    from barnabas.machines.groups.consumer.member import Member
    from barnabas.machines.groups.table import GroupDraft, GroupOutcome, GroupTable

SESSION: Final = "consumer.session"
REBALANCE: Final = "consumer.rebalance"
JOIN: Final = "consumer.join"
SYNC: Final = "consumer.sync"
"""Kinds of timers of a member: its session; to revoke partitions; to join again; to sync."""

MIN_REFRESH_INTERVAL_MS: Final = 10_000
"""Patterns of a group are resolved no more often than this, and all at once, so they make one rebalance."""
MAX_SIZE_AT_ONCE: Final = 512
"""Patterns that are larger than this together, by their instructions, are resolved a part at a time, so they do not
hold up the broker: some thirty patterns of the usual kind."""


class SubscriptionChange(NamedTuple):
    """The group epoch and subscriptions after a request."""

    epoch: int
    """The group's epoch after it."""
    subscription_changed: bool
    """Whether the member subscribes to something else than before."""
    subscriptions: Subscriptions
    """What all members subscribe to, with patterns as they are resolved after it."""
    compared: bool
    """Whether the group's hash was compared with that of the topics as they are."""


class ConsumerRebalance:
    """Rebalances the consumer groups of one coordinator."""

    def __init__(self, table: GroupTable) -> None:
        self._table = table
        self._topic_hashes: dict[str, int] = {}

    def forget_topics(self, names: Collection[str]) -> None:
        """These topics changed: compute their hashes again."""
        for name in names:
            self._topic_hashes.pop(name, None)

    def hash_of(self, topics: Collection[str]) -> int:
        """The hash of a group that reads these topics."""
        return group_hash(topics, self._table.image, self._topic_hashes)

    def subscribe(
        self,
        group: ConsumerGroup,
        old: Member,
        new: Member,
        draft: GroupDraft,
        now_ms: int,
        may_see: Callable[[str], bool] | None = None,
    ) -> SubscriptionChange:
        """Replace member `old` by `new`, and raise the group epoch if that changes the subscriptions of the group.

        A pattern matches only what the member `may_see` in whose request it is resolved.
        """
        group_id = group.group_id
        if new is not old and new != old:
            draft.changes.append(member_record(group_id, new))
        resolved = self._resolve(group, old, new, draft, now_ms, may_see)
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
        return SubscriptionChange(
            epoch, names_changed or regex_changed, Subscriptions(self._table.image, resolved), compared
        )

    def target(
        self, group: ConsumerGroup, change: SubscriptionChange, old: Member, new: Member, draft: GroupDraft, now_ms: int
    ) -> Target:
        """What the member is to have: by a new target assignment if the epoch was raised and it is time for one."""
        settings = self._table.settings_of(group.group_id)
        if group.assignment_epoch >= change.epoch or not may_assign(
            group.assignment_timestamp, settings.consumer_assignment_interval_ms, now_ms
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
        change: SubscriptionChange,
        target: Target,
        member: Member,
        owned: Partitions | None,
        draft: GroupDraft,
        now_ms: int,
    ) -> Member:
        """Take the member one step towards its target. Raises FencedMemberEpoch."""
        after = member
        if change.subscription_changed or not member.is_reconciled_to(target.epoch):
            after = Reconciliation(
                target_epoch=target.epoch,
                target=target.partitions,
                owners_of=group.owners_of,
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
            elif member.state is MemberState.UNREVOKED_PARTITIONS:
                draft.cancel_timer(key)
        return after

    def keeps_all(self, group: ConsumerGroup, member: Member) -> Member | None:
        """A member that changes nothing and whose target is what it has, one step on: in the epoch of that target.

        None for any other member, and for one whose group has patterns. Reconciliation would come to the same: nothing
        is revoked, gained or waited for.
        """
        target, assigned = group.target_of(member), member.assigned
        if member.state is not MemberState.STABLE or len(assigned) != len(target) or member.pending_revocation:
            return None
        names, topics = self._table.image.topic_names, member.topics
        for topic_id, wanted in target.items():
            held = assigned.get(topic_id)  # a target of another broker's records may name a topic without partitions
            if held is None or held.keys() != wanted or names.get(topic_id) not in topics:
                return None
        return member.placed(group.assignment_epoch, member.epoch, MemberState.STABLE, assigned, NOTHING)

    def follow(
        self, group: ConsumerGroup, member: Member, owned: Partitions | None, draft: GroupDraft, now_ms: int
    ) -> Member:
        """Take a member that changes nothing one step towards the last target assignment, which is the group's."""
        unchanged = SubscriptionChange(group.epoch, False, Subscriptions(self._table.image, group.resolved), False)
        return self.reconcile(group, unchanged, self.last_target(group, member), member, owned, draft, now_ms)

    def remove(self, group: ConsumerGroup, members: Collection[Member], draft: GroupDraft) -> None:
        """Remove members, and raise the group epoch."""
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
        self,
        group: ConsumerGroup,
        old: Member,
        new: Member,
        draft: GroupDraft,
        now_ms: int,
        may_see: Callable[[str], bool] | None,
    ) -> Mapping[str, ResolvedRegex]:
        """The patterns of the group with the topics that they match, resolved again if it is time for that."""
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
            topics = MATCHES.among(regex, self._table.image.topics)
            if may_see is not None:
                topics = frozenset(filter(may_see, topics))
            found = ResolvedRegex(topics, now_ms, now_ms)
            resolved[regex] = found
            draft.changes.append(
                CoordinatorRecord(
                    ConsumerGroupRegularExpressionKey(group.group_id, regex),
                    ConsumerGroupRegularExpressionValue(tuple(sorted(found.topics)), found.version, found.timestamp),
                )
            )
        return resolved


def compare_again(group: ConsumerGroup) -> GroupOutcome:
    """A request was not stored: the hash of the group's topics has to be compared again."""
    group.metadata_current = False
    return Outcome()


def cancel_timers(group_id: str, member_id: str, draft: GroupDraft) -> None:
    """Cancel all timers of a member."""
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
