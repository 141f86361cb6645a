"""What all rules of one coordinator share: its groups, the cluster's image and the settings.

One coordinator has the groups of one partition of `__consumer_offsets`: those whose id hashes to it. A group is of
one kind at a time, classic, consumer or share; the rules of each kind live in a module of their own and find each
other's groups here.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, Protocol

from barnabas.machines.controller.image import ClusterImage
from barnabas.machines.groups.settings import GroupSettings

if TYPE_CHECKING:
    from collections.abc import Callable
    from uuid import UUID

    from barnabas.machines.groups.consumer.group import ConsumerGroup
    from barnabas.machines.groups.consumer.member import Member
    from barnabas.machines.outcome import CoordinatorOutcome, Draft
    from barnabas.protocol.coordinator_records import CoordinatorRecord

    CommitCheck = Callable[[str, UUID | None, int], None]
    """Takes a topic's name and id and a partition, and raises if no offset may be committed for it."""
    GroupDraft = Draft[CoordinatorRecord]
    GroupOutcome = CoordinatorOutcome[CoordinatorRecord]
    PackedOutcome = CoordinatorOutcome[CoordinatorRecord | "PackedRecord"]


class TimerKey(NamedTuple):
    """What a timer is for."""

    kind: str
    group_id: str
    member_id: str = ""


class PackedRecord(NamedTuple):
    """A record of a member's assignment that was packed when it was decided, with what its replay comes to.

    It is for the step of a member into another epoch, which each of a thousand members takes in one rebalance. Tests
    hold its bytes equal to those of the record that all rules would decide, and the group after its replay equal to the
    group after that record's.
    """

    pair: tuple[bytes, bytes]
    """Key and value."""
    group: ConsumerGroup
    before: Member
    """The member as it was when this was decided; if it is another by now, what was packed is read."""
    after: Member

    def take(self) -> bool:
        """Replay it; False, with nothing done, if the member is another by now."""
        members, after = self.group.members, self.after
        if members.get(after.member_id) is not self.before:
            return False
        members[after.member_id] = after
        return True


class Group(Protocol):
    """What is asked of a group whatever its kind."""

    group_id: str
    may_expire: bool
    """Whether it goes by itself when it has neither members nor offsets."""

    @property
    def is_empty(self) -> bool:
        """Whether it has no members."""
        ...

    def check_offset_commit(
        self, member_id: str, instance_id: str | None, epoch: int, version: int, *, transactional: bool = False
    ) -> CommitCheck | None:
        """Refuse a commit of a client that is not the member that it names; `epoch` may be a generation.

        A producer may commit in a transaction without saying whose offsets they are.

        Where it depends on the partition, what comes back has to be asked for each of them.
        """
        ...

    def check_offset_fetch(self, member_id: str | None, epoch: int, now_ms: int) -> None:
        """Refuse a fetch of offsets by a member that is behind; a fetch without a member is not checked."""
        ...

    def check_offset_delete(self) -> None:
        """Refuse to delete offsets of a group in this state."""
        ...

    def check_delete(self) -> None:
        """Refuse to delete a group in this state."""
        ...

    def is_subscribed_to(self, topic: str) -> bool:
        """Whether a member reads this topic, so that its offsets are in use."""
        ...

    def offsets_unused_since(self, committed_ms: int, topic: str) -> int | None:
        """From when on the retention of an offset counts; None while it is in use."""
        ...

    def tombstones(self) -> tuple[CoordinatorRecord, ...]:
        """The records that remove the group's own state, without its offsets."""
        ...


@dataclass(slots=True, kw_only=True)
class GroupTable:
    """The groups of one coordinator."""

    new_id: Callable[[], str]
    """Makes unique ids: the text of a random UUID."""
    settings: GroupSettings = field(default_factory=GroupSettings)
    group_settings: Callable[[str], GroupSettings] | None = None
    image: ClusterImage = field(default_factory=ClusterImage)
    groups: dict[str, Group] = field(default_factory=dict)

    def settings_of(self, group_id: str) -> GroupSettings:
        """The settings of one group."""
        return self.settings if self.group_settings is None else self.group_settings(group_id)
