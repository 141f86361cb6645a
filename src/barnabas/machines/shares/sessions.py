"""Share sessions: which partitions a member fetches over a connection, and the epoch that orders its requests.

    0           begins a session, with the partitions that the member names; one that it had before ends
    1, 2, ...   go on with it; a request changes the partitions by what it adds and forgets
    -1          ends it: what the member has acquired is released

A member has one session on a broker, and the session ends with its connection. Sessions are not evicted: a member that
finds no room is told so.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple

from barnabas.model.errors import (
    InvalidRequest,
    InvalidShareSessionEpoch,
    ShareSessionLimitReached,
    ShareSessionNotFound,
)

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable
    from uuid import UUID

INITIAL: Final = 0
FINAL: Final = -1
LAST_EPOCH: Final = 2**31 - 1


class TopicIdPartition(NamedTuple):
    """A partition that a member fetches."""

    topic_id: UUID
    partition: int


@dataclass(slots=True, eq=False)
class ShareSession:
    """What a member fetches."""

    group_id: str
    member_id: str
    connection: Hashable
    epoch: int = 1
    """That of the next request."""
    partitions: dict[TopicIdPartition, None] = field(default_factory=dict)
    is_over: bool = False
    """Whether it has ended. A fetch that still waits must not acquire anything then: nobody would release it."""

    def advance(self, epoch: int) -> None:
        """Take a request with this epoch. Raises InvalidShareSessionEpoch."""
        if epoch != self.epoch:
            raise InvalidShareSessionEpoch(f"The share session expects epoch {self.epoch}, not {epoch}.")
        self.epoch = 1 if epoch == LAST_EPOCH else epoch + 1


class ShareSessions:
    """The share sessions of a broker."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._sessions: dict[tuple[str, str], ShareSession] = {}
        self._by_connection: dict[Hashable, dict[ShareSession, None]] = {}
        self._of_group = Counter[str]()

    def __len__(self) -> int:
        return len(self._sessions)

    def begin(
        self, group_id: str, member_id: str, connection: Hashable, added: Iterable[TopicIdPartition]
    ) -> tuple[ShareSession, ShareSession | None]:
        """A new session, and the one that it replaces. Raises ShareSessionLimitReached."""
        replaced = self._sessions.get((group_id, member_id))
        if replaced is None and len(self._sessions) >= self._most:
            raise ShareSessionLimitReached(f"This broker has {self._most} share sessions already.")
        if replaced is not None:
            self.end(replaced)
        session = ShareSession(group_id, member_id, connection, partitions=dict.fromkeys(added))
        self._sessions[group_id, member_id] = session
        self._of_group[group_id] += 1
        self._by_connection.setdefault(connection, {})[session] = None
        return session, replaced

    def find(self, group_id: str, member_id: str) -> ShareSession:
        """The session of a member. Raises ShareSessionNotFound."""
        session = self._sessions.get((group_id, member_id))
        if session is None:
            raise ShareSessionNotFound(f"Member {member_id} of group {group_id} has no share session here.")
        return session

    def continue_fetching(
        self,
        group_id: str,
        member_id: str,
        epoch: int,
        added: Iterable[TopicIdPartition],
        forgotten: Iterable[TopicIdPartition],
    ) -> ShareSession:
        """The session of a member that goes on, with what it adds and forgets."""
        session = self.find(group_id, member_id)
        session.advance(epoch)
        session.partitions.update(dict.fromkeys(added))
        for partition in forgotten:
            session.partitions.pop(partition, None)
        return session

    def acknowledging(self, group_id: str, member_id: str, epoch: int) -> ShareSession:
        """The session of a member that only acknowledges, with any epoch but that which begins one."""
        if epoch == INITIAL:
            raise InvalidShareSessionEpoch("A share session begins with ShareFetch.")
        session = self.find(group_id, member_id)
        if epoch != FINAL:
            session.advance(epoch)
        return session

    def end(self, session: ShareSession) -> None:
        """End a session."""
        session.is_over = True
        if self._sessions.get((session.group_id, session.member_id)) is session:
            del self._sessions[session.group_id, session.member_id]
            self._of_group[session.group_id] -= 1
            if not self._of_group[session.group_id]:
                del self._of_group[session.group_id]
        beside = self._by_connection.get(session.connection)
        if beside is not None:
            beside.pop(session, None)
            if not beside:
                del self._by_connection[session.connection]

    def has_members(self, group_id: str) -> bool:
        """Whether any member of a group has a session here."""
        return group_id in self._of_group

    def connection_ended(self, connection: Hashable) -> list[ShareSession]:
        """End the sessions of a connection; gives them."""
        ended = list(self._by_connection.get(connection, ()))
        for session in ended:
            self.end(session)
        return ended


def check_first(acknowledges: bool) -> None:
    """Refuse acknowledgements in a request that begins a session. Raises InvalidRequest."""
    if acknowledges:
        raise InvalidRequest("A request that begins a share session cannot acknowledge anything.")
