"""A schema registry, asked over HTTP: what it answers is bounded, and believed no more than a record is."""

from __future__ import annotations

import base64
import json
from typing import Any, Final
from urllib.parse import quote, unquote, urlsplit, urlunsplit

from barnabas.clients.web import fetch

TIMEOUT_SECONDS: Final = 3.0
MOST_BYTES: Final = 4 << 20


class RegistryFailed(Exception):
    """A registry that does not answer, or not with what was asked for: the message says what happened."""


class Registry:
    """One registry; a user and password in its address are sent as such."""

    def __init__(self, address: str) -> None:
        parts = urlsplit(address.rstrip("/"))
        self._headers = {"Accept": "application/vnd.schemaregistry.v1+json, application/json"}
        if parts.username is not None:
            pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
            self._headers["Authorization"] = f"Basic {base64.b64encode(pair.encode()).decode()}"
        self.address = urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))
        """Without the password."""

    def ask(self, *path: str, query: str = "") -> Any:
        """What the registry has there, as JSON has it. Raises RegistryFailed."""
        url = "/".join((self.address, *(quote(part, safe="") for part in path))) + query
        try:
            return json.loads(fetch(url, seconds=TIMEOUT_SECONDS, most_bytes=MOST_BYTES, headers=self._headers))
        except (OSError, ValueError, RecursionError) as error:
            raise RegistryFailed(f"{url}: {error}") from error

    def object(self, *path: str, query: str = "") -> dict[str, Any]:
        """As `ask`, of what has to be an object."""
        found = self.ask(*path, query=query)
        if not isinstance(found, dict):
            raise RegistryFailed(f"{self.address} answered with something else than an object")
        return found
