"""The kinds of groups that have a command of their own, and how messages name both."""

from __future__ import annotations

from typing import Final, NamedTuple


class GroupKind(NamedTuple):
    """A kind of groups."""

    name: str
    command: str


CONSUMER_GROUPS: Final = GroupKind("consumer", "groups")
SHARE_GROUPS: Final = GroupKind("share", "share-groups")
