"""How far a Delta table is, by the notes in its log.

The newest note counts, unless somebody restored an older version since (`RESTORE`): rows go back then, and so do the
offsets, to those of the version that was restored. Commits of others, as `OPTIMIZE`, change no position.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from deltalake import DeltaTable

from barnabas.pipelines.tables.errors import TableError
from barnabas.pipelines.tables.notes import Note, from_text

if TYPE_CHECKING:
    from collections.abc import Mapping

NOTE: Final = "barnabas"
"""What a note is called in the information of a commit."""
_PAGES: Final = (1, 20, None)
"""How many commits are read: mostly the newest one has it."""


class DeltaHistory:
    """The log of a table, from the version that was opened on backwards."""

    def __init__(self, table: DeltaTable, location: str, options: dict[str, str] | None = None) -> None:
        self._table = table
        self._location = location
        self._options = options
        self._pages = list(_PAGES)
        self._commits: dict[int, dict[str, Any]] = {}

    def newest_note(self) -> Note | None:
        """The note of the newest commit that has one, whatever was restored since; None in somebody else's table."""
        return self._note_before(self._table.version() + 1, follow_restores=False)

    def note(self) -> Note | None:
        """The note that is true of the table's rows; None in somebody else's table. Raises TableError if unknown."""
        newest = self.newest_note()
        found = self._note_before(self._table.version() + 1)
        if newest is None or found is None:
            return found
        return replace(found, version=newest.version)  # numbers of commits are not used twice

    def _note_before(self, version: int, *, follow_restores: bool = True) -> Note | None:
        while (commit := self._commit(version := version - 1)) is not None:
            if NOTE in commit:
                return from_text(commit[NOTE])
            if follow_restores and commit.get("operation") == "RESTORE":
                return self._note_restored(version, commit)
        return None

    def _note_restored(self, at: int, commit: Mapping[str, Any]) -> Note:
        """The note of the version that a commit has restored."""
        restored = _number(commit.get("operationParameters", {}).get("version"))
        versions = self._versions_like(at) if restored is None else [restored]
        found = [note for each in versions if (note := self._note_before(each + 1)) is not None]
        if not found or any(each.offsets != found[0].offsets for each in found):
            raise TableError(
                f"{self._location} was restored by its version {at}, and its log does not say to which version: "
                "restore it to the number of a version that is in the log, or load into another table."
            )
        return found[0]

    def _versions_like(self, at: int) -> list[int]:
        """Versions before this one that have the same files: one that was restored by a moment is among them."""
        wanted = self._files(at)
        self._commit(-1)
        return [version for version in sorted(self._commits) if version < at and self._files(version) == wanted]

    def _files(self, version: int) -> set[str]:
        return set(DeltaTable(self._location, version, self._options).file_uris())

    def _commit(self, version: int) -> Mapping[str, Any] | None:
        """What the log says of a commit; None where the log does not go back so far."""
        while version not in self._commits and self._pages:
            for each in self._table.history(self._pages.pop(0)):
                self._commits[each["version"]] = each
        return self._commits.get(version)


def _number(value: object) -> int | None:
    text = str(value)
    return int(text) if text.isdecimal() else None
