"""A member of a classic group: what it said of itself when it joined, its assignment, and what it waits for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from barnabas.protocol.coordinator_records import ClassicProtocol, MemberMetadata

if TYPE_CHECKING:
    from collections.abc import Collection

    from barnabas.machines.outcome import Asker
    from barnabas.protocol.messages.groups.join_group import JoinGroupResponse
    from barnabas.protocol.messages.groups.sync_group import SyncGroupResponse


@dataclass(slots=True, kw_only=True, eq=False)
class ClassicMember:
    """One member.

    The askers and `is_new` are soft: a reload forgets them, and members that waited ask again. A reload also forgets
    all protocols but the group's, since the log holds no others.
    """

    member_id: str
    instance_id: str | None
    """group.instance.id of a static member; None of a dynamic one."""
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    protocols: tuple[ClassicProtocol, ...]
    """The protocols that it supports, the preferred one first."""
    assignment: bytes = b""
    join_asker: Asker[JoinGroupResponse] | None = None
    """Who waits for the group to be complete."""
    sync_asker: Asker[SyncGroupResponse] | None = None
    """Who waits for the leader's assignments."""
    last_stored: MemberMetadata | None = None
    """What was last made of it for the log. Nothing else in the log is this object."""
    is_new: bool = False
    """Whether its first join is not answered: it does not know its own id yet, so it cannot send heartbeats."""

    @classmethod
    def loaded(cls, stored: MemberMetadata, protocol: str) -> ClassicMember:
        """A member as the log knows it."""
        return cls(
            member_id=stored.member_id,
            instance_id=stored.group_instance_id,
            client_id=stored.client_id,
            client_host=stored.client_host,
            rebalance_timeout_ms=stored.session_timeout if stored.rebalance_timeout < 0 else stored.rebalance_timeout,
            session_timeout_ms=stored.session_timeout,
            protocols=(ClassicProtocol(protocol, stored.subscription),),
            assignment=stored.assignment,
        )

    def metadata(self, protocol: str) -> bytes:
        """What it says about itself in a protocol."""
        for each in self.protocols:
            if each.name == protocol:
                return each.metadata
        raise KeyError(f"Member {self.member_id} does not support protocol {protocol}.")

    def vote(self, candidates: Collection[str]) -> str:
        """The candidate that it likes best."""
        return next(protocol.name for protocol in self.protocols if protocol.name in candidates)

    @property
    def is_waiting(self) -> bool:
        """Whether a request of it is parked, so that it need not send heartbeats."""
        return self.join_asker is not None or self.sync_asker is not None

    def stored(self, protocol: str, assignment: bytes) -> MemberMetadata:
        """The member for the log."""
        self.last_stored = MemberMetadata(
            member_id=self.member_id,
            group_instance_id=self.instance_id,
            client_id=self.client_id,
            client_host=self.client_host,
            rebalance_timeout=self.rebalance_timeout_ms,
            session_timeout=self.session_timeout_ms,
            subscription=self.metadata(protocol),
            assignment=assignment,
        )
        return self.last_stored
