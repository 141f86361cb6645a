"""The audit log: who changed what by the console, and whether it was done. One line of JSON for each change."""

from __future__ import annotations

import json
import logging
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

log = logging.getLogger(__name__)


class ChangeLog:
    """A file that only grows; each line is also a line of the console's log."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def write(self, *, user: str | None, address: str, action: str, target: str, outcome: str, **details: Any) -> None:
        """Note a change; `outcome` is `done`, or why it was not."""
        entry = {
            "at": datetime.now(UTC).isoformat(timespec="milliseconds"),
            "user": user,
            "address": address,
            "action": action,
            "target": target,
            "outcome": outcome,
            **({"details": details} if details else {}),
        }
        line = json.dumps(entry)
        log.info("Audit: %s", line)
        try:
            self._file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            with self._file.open("a", encoding="utf-8") as file:
                file.write(f"{line}\n")
        except OSError as error:
            log.warning("The audit log %s cannot be written: %s", self._file, error)

    def newest(self, count: int) -> list[dict[str, Any]]:
        """The last changes, the newest first."""
        try:
            with self._file.open("rb") as file:
                file.seek(max(0, self._file.stat().st_size - count * 2_000))
                lines = file.read().decode(errors="replace").splitlines()[-count:]
        except OSError:
            return []
        found = []
        for line in reversed(lines):
            try:
                found.append(json.loads(line))
            except ValueError:
                continue
        return found
