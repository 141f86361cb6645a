"""Who asks: every handler is told the listener, the principal, the client's name and its address."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from barnabas.broker.turned_away import TurnedAway

if TYPE_CHECKING:
    from barnabas.protocol.broker_proof import Introduction

ANONYMOUS = "User:ANONYMOUS"


@dataclass(slots=True)
class Peer:
    """What the other end of a connection has proved to be, or is about to (`handlers/introductions`)."""

    broker_id: int | None = None
    """The broker of this cluster that it is; None for anybody else."""
    introduction: Introduction | None = None
    turned_away: TurnedAway = field(default_factory=TurnedAway)


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """One client on one connection."""

    listener: str
    address: tuple[str, int]
    client_id: str | None
    principal: str = ANONYMOUS
    peer: Peer = field(default_factory=Peer, compare=False)

    @property
    def broker_id(self) -> int | None:
        """The broker of this cluster that the caller has proved to be; None for clients."""
        return self.peer.broker_id

    @property
    def named(self) -> tuple[str | None, str]:
        """What the client calls itself, and where it is; for people."""
        host, port = self.address
        return self.client_id, f"{host}:{port}"
