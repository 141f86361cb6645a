"""Reads brokers' metrics listeners over HTTP or HTTPS, with the token that they ask for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from barnabas.clients.web import fetch

if TYPE_CHECKING:
    from pathlib import Path

MOST_BYTES: Final = 256 << 20


@dataclass(frozen=True, slots=True)
class MetricsAccess:
    """What it takes to be let in."""

    token: str | None = None
    """What listeners want as a bearer token (metrics.token)."""
    authority: Path | None = None
    """Certificates in PEM that are trusted in place of the system's."""

    def get(self, url: str, seconds: float) -> bytes:
        """What is found there; raises OSError (of HTTP: urllib's HTTPError) and ValueError."""
        headers = {} if self.token is None else {"Authorization": f"Bearer {self.token}"}
        return fetch(url, seconds=seconds, most_bytes=MOST_BYTES, headers=headers, authority=self.authority)
