"""What a check found, and how much it read."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from barnabas.model.remedies import Remedy

_FINDINGS_PER_FILE: Final = 20


class Severity(Enum):
    """How bad a finding is."""

    ERROR = "error"
    WARNING = "warning"
    NOTE = "note"


class Finding(NamedTuple):
    """Something that is not as it should be; `position` is a byte of the file, where there is one.

    `remedy` is what can be done about it.
    """

    path: Path
    position: int | None
    what: str
    severity: Severity
    remedy: Remedy | None = None

    def __str__(self) -> str:
        place = "" if self.position is None else f" at byte {self.position}"
        return f"{self.severity.value}: {self.path}{place}: {self.what}"


@dataclass(slots=True)
class Report:
    """What was found and how much was read. Findings are cut after the first 20 of a file."""

    findings: list[Finding] = field(default_factory=list)
    left_out: int = 0
    partitions: int = 0
    segments: int = 0
    batches: int = 0
    records: int = 0
    size: int = 0
    unsequenced: int = 0
    """Batches of `__consumer_offsets` that earlier versions of Barnabas wrote, without a sequence number."""
    in_use: bool = False
    """Whether a broker has the directory: then files that it writes when it stops are not missed."""
    watched: Callable[[int], None] = field(default=lambda size: None, repr=False, compare=False)
    """Told of the bytes of each batch when it was checked."""

    @property
    def errors(self) -> list[Finding]:
        """The findings that are errors."""
        return [finding for finding in self.findings if finding.severity is Severity.ERROR]

    @property
    def warnings(self) -> list[Finding]:
        """The findings that are warnings."""
        return [finding for finding in self.findings if finding.severity is Severity.WARNING]

    @property
    def ok(self) -> bool:
        """Whether there is no error; warnings and notes are allowed."""
        return not self.errors

    def summary(self) -> str:
        """One line of counts."""
        errors, warnings = len(self.errors), len(self.warnings)
        more = f" ({self.left_out} more left out)" if self.left_out else ""
        return (
            f"{self.partitions} partitions, {self.segments} segments, {self.batches} batches, {self.records} records, "
            f"{self.size} bytes: {errors} errors, {warnings} warnings{more}"
        )

    def error(self, path: Path, position: int | None, what: str) -> None:
        """Note an error."""
        self._add(Finding(path, position, what, Severity.ERROR))

    def warn(self, path: Path, position: int | None, what: str) -> None:
        """Note a warning."""
        self._add(Finding(path, position, what, Severity.WARNING))

    def note(self, path: Path, position: int | None, what: str, remedy: Remedy | None = None) -> None:
        """Note something that is as it should be, and still good to know."""
        self._add(Finding(path, position, what, Severity.NOTE, remedy))

    def _add(self, finding: Finding) -> None:
        recent = self.findings[-_FINDINGS_PER_FILE:]
        if len(recent) == _FINDINGS_PER_FILE and all(
            (old.path, old.severity) == (finding.path, finding.severity) for old in recent
        ):
            self.left_out += 1
        else:
            self.findings.append(finding)
