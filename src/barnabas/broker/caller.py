"""Who asks: every handler is told the listener, the principal, the client's name and its address."""

from __future__ import annotations

from dataclasses import dataclass

ANONYMOUS = "User:ANONYMOUS"


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """One client on one connection."""

    listener: str
    address: tuple[str, int]
    client_id: str | None
    principal: str = ANONYMOUS

    @property
    def named(self) -> tuple[str | None, str]:
        """What the client calls itself, and where it is; for people."""
        host, port = self.address
        return self.client_id, f"{host}:{port}"
