"""Deleting groups that have many offsets, a part at a time.

A group may have a hundred thousand offsets, and each needs a record that removes it. One pass writes some of them; the
timer for the rest is then due at once. For clients a group goes at once all the same: from the first pass to the last
nobody is told anything of it (`under_way`), so nobody sees it with a part of its offsets, and nobody adds to it.

What is left to do is soft state. A coordinator that is loaded again has a group with fewer offsets, and the one who
asked got an error: the deletion is to be asked for again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from barnabas.machines.groups.share.group import ShareGroup
from barnabas.machines.groups.table import TimerKey
from barnabas.machines.outcome import Draft, Outcome, answer
from barnabas.model.errors import ApiError, ErrorCode, GroupIdNotFound

if TYPE_CHECKING:
    from barnabas.machines.groups.offsets.rules import OffsetRules
    from barnabas.machines.groups.share.offsets import DeleteStates, ShareOffsets
    from barnabas.machines.groups.table import Group, GroupDraft, GroupOutcome, GroupTable
    from barnabas.machines.outcome import Asker
    from barnabas.protocol.coordinator_records import CoordinatorRecord

DELETE_TIMER: Final = TimerKey("deletion.pass", "")
FEW: Final = 10
"""Offsets of a group that is deleted at once: a request may name many such groups."""
MOST: Final = 1000
"""Records of one pass, or some more: 10 ms of work."""


class GroupDeletions:
    """Deletes groups, and knows which are being deleted."""

    def __init__(self, table: GroupTable, offsets: OffsetRules, shares: ShareOffsets) -> None:
        self._table = table
        self._offsets = offsets
        self._shares = shares
        self.under_way: dict[str, Asker[ErrorCode]] = {}
        """Who waits for the deletion, by group id; the first comes first. No request of such a group is decided."""

    def delete(
        self, group_id: str, asker: Asker[ErrorCode | DeleteStates], now_ms: int, *, states_deleted: bool = False
    ) -> GroupOutcome:
        """Remove an empty group and its offsets; the answer is an error code.

        What a share coordinator keeps for a share group has to go first: then the answer says what that is, and the
        group is to be deleted again with `states_deleted`.
        """
        try:
            group = self._check(group_id)
        except ApiError as error:
            return answer(asker, error.code)
        if isinstance(group, ShareGroup) and not states_deleted:
            begun = self._shares.give_all_up(group, asker)
            if begun is not None:
                return begun
        offsets = self._offsets.tombstones(group_id, FEW + 1)
        if len(offsets) <= FEW:
            changes = (*offsets, *group.tombstones())
            return Outcome(changes=changes, replies=((asker, ErrorCode.none),), is_divisible=True)
        draft: GroupDraft = Draft()
        if not self.under_way:
            draft.set_timer(DELETE_TIMER, now_ms)
        self.under_way[group_id] = asker
        return draft.outcome()

    def expire(self, now_ms: int) -> GroupOutcome:
        """Remove some offsets, and the groups that have none left."""
        changes: list[CoordinatorRecord] = []
        draft: GroupDraft = Draft()
        while self.under_way and len(changes) < MOST:
            group_id, asker = next(iter(self.under_way.items()))
            room = MOST - len(changes)
            try:
                group = self._check(group_id)
            except ApiError as error:  # it expired meanwhile, which is as good
                gone = isinstance(error, GroupIdNotFound)
                draft.reply(asker, ErrorCode.none if gone else error.code)
            else:
                offsets = self._offsets.tombstones(group_id, room + 1)
                changes += offsets[:room]
                if len(offsets) > room:
                    break
                changes += group.tombstones()
                draft.reply(asker, ErrorCode.none)
            del self.under_way[group_id]
        if self.under_way:
            draft.set_timer(DELETE_TIMER, now_ms)
        return Outcome(
            changes=tuple(changes), replies=tuple(draft.replies), timers=tuple(draft.timers), is_divisible=True
        )

    def abandon(self, code: ErrorCode) -> GroupOutcome:
        """Tell everyone who waits that this coordinator is none any more."""
        replies = tuple((asker, code) for asker in self.under_way.values())
        self.under_way.clear()
        return Outcome(replies=replies)

    def _check(self, group_id: str) -> Group:
        """The group, if it may be deleted. Raises ApiError."""
        group = self._table.groups.get(group_id)
        if group is None:
            raise GroupIdNotFound(f"Group {group_id} not found.")
        group.check_delete()
        return group
