"""The caller of a request, as every handler gets it: listener, principal, client id and address.

Who the other end is belongs to the connection (`Session`): it stays when the client changes its client id.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from barnabas.broker.replication.retried_batches import RetriedBatches

if TYPE_CHECKING:
    from collections.abc import Callable

    from barnabas.machines.security.acls import AclResourceType, Operation
    from barnabas.machines.security.authorizer import Authorization
    from barnabas.protocol.messages.broker_proof import Introduction

ANONYMOUS = "User:ANONYMOUS"


@dataclass(slots=True, eq=False)
class Memo:
    """What a connection was answered by the present rules (`broker/permissions/access`)."""

    decisions: dict[tuple[str, Operation, AclResourceType, str], Authorization] = field(default_factory=dict)
    """By principal, operation and resource."""
    writable: set[tuple[str, str | bytes]] = field(default_factory=set)
    """By principal, topics that it may write to, as Produce names them: by name or by the bytes of their ids."""
    readable: set[tuple[str, str | bytes]] = field(default_factory=set)
    """By principal, topics that it may read, as Fetch names them."""
    fetched: object = None
    """Partitions of a fetch session, of which all may be read by `fetched_by`."""
    fetched_by: str = ""

    def is_full(self, most: int) -> bool:
        """Whether there are so many answers that it is time to begin anew."""
        return max(len(self.decisions), len(self.writable), len(self.readable)) >= most


NO_MEMO: Final = Memo()
"""What a connection remembers that was not asked yet; nothing is ever added to this one."""


@dataclass(slots=True, weakref_slot=True, eq=False)
class Session:
    """Who the other end of a connection is, as far as it has proved that."""

    principal: str = ANONYMOUS
    """Its type and name, as rules for principals have them."""
    is_logging_in: bool = False
    """Whether it has still to say who it is, where it has to. What it asks meanwhile counts for nobody's quota."""
    is_token: bool = False
    """Whether it logged in with a delegation token, and not as itself."""
    broker_id: int | None = None
    """The broker of this cluster that it is; None for anybody else."""
    software: str = ""
    """The client's software and its version, as it named them (KIP-511)."""
    introduction: Introduction | None = None
    """What it is about to prove (`handlers/broker_handshake`)."""
    uncounted: int = 2
    """Requests of a broker's proof that do not count for quotas: a hello and a proof. Others of this connection do."""
    retried_batches: RetriedBatches = field(default_factory=RetriedBatches)
    memo: Memo = NO_MEMO
    """What it may do, as far as it was asked."""
    on_end: Callable[[], object] | None = None
    """Called when the connection ends: what the other end holds on this broker goes with it (share sessions)."""
    has_ended: bool = False
    """Whether the connection has ended. What it sent before may still be served."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """One client on one connection."""

    listener: str
    address: tuple[str, int]
    client_id: str | None
    session: Session = field(default_factory=Session, compare=False)
    host: str = field(init=False, compare=False)
    """The address as Kafka writes it in records of members: with a slash before it."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "host", f"/{self.address[0]}")

    @property
    def principal(self) -> str:
        """Who the caller is, for rules about principals."""
        return self.session.principal

    @property
    def broker_id(self) -> int | None:
        """The broker of this cluster that the caller has proved to be; None for clients."""
        return self.session.broker_id

    @property
    def named(self) -> tuple[str | None, str]:
        """The client id and the address, for log lines."""
        host, port = self.address
        return self.client_id, f"{host}:{port}"
