"""What the cleaner did, for people: one small file per log directory, beside its checkpoints.

`barnabas-cleaner.json` has one entry for every partition that was cleaned or could not be: when, how far, how much. It
is a note and nothing that the broker relies on: it is read at the start to be continued, and without it the account
begins anew. Up to where a log is clean stands in `cleaner-offset-checkpoint`.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Final

from barnabas.storage.checkpoints import CLEANED, read_offsets
from barnabas.storage.cleaner.plan import base_offset_of, sealed_bytes
from barnabas.storage.files import FileSystem

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

FILE: Final = "barnabas-cleaner.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class LastCleaning:
    """The last time that a partition was cleaned."""

    time_ms: int
    seconds: float
    first_dirty: int
    """Where the dirty part began."""
    cleaned_to: int
    """Where it begins since."""
    keys: int
    records_in: int
    records_out: int
    bytes_in: int
    bytes_out: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionReport:
    """What is to be said of one partition."""

    cleanings: int = 0
    """How often it was cleaned."""
    last: LastCleaning | None = None
    uncleanable: str | None = None
    """Why it is not cleaned any more, until the broker starts again."""


def read_report(files: FileSystem, directory: str) -> dict[str, PartitionReport]:
    """The reports of a log directory by partition; empty when there is none that can be read."""
    try:
        content = json.loads(files.read_file(f"{directory}/{FILE}"))
        return {name: _decode(fields) for name, fields in content["partitions"].items()}
    except (FileNotFoundError, ValueError, KeyError, TypeError, AttributeError):
        return {}


def write_report(files: FileSystem, directory: str, reports: Mapping[str, PartitionReport]) -> None:
    """Replace the reports of a log directory."""
    content = {"version": 1, "partitions": {name: asdict(report) for name, report in sorted(reports.items())}}
    files.write_file(f"{directory}/{FILE}", json.dumps(content, indent=1).encode(), sync=False)


def _decode(fields: dict[str, Any]) -> PartitionReport:
    last = fields["last"]
    return PartitionReport(
        cleanings=fields["cleanings"],
        last=None if last is None else LastCleaning(**last),
        uncleanable=fields["uncleanable"],
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Overview:
    """What a log directory tells of one partition, whether a broker runs or not."""

    partition: str
    first_dirty: int
    clean_bytes: int
    """Of sealed segments before the first dirty offset, going by file names."""
    dirty_bytes: int
    """Of sealed segments after it; the active segment is in neither."""
    report: PartitionReport

    @property
    def dirty_ratio(self) -> float:
        """What share of the sealed segments is dirty."""
        total = self.clean_bytes + self.dirty_bytes
        return self.dirty_bytes / total if total else 0.0


def overview(directory: Path) -> list[Overview]:
    """The partitions of a log directory that the cleaner had to do with. Opens two small files, and no log."""
    files = FileSystem()
    first_dirty = {str(tp): offset for tp, offset in read_offsets(files, f"{directory}/{CLEANED}").items()}
    reports = read_report(files, str(directory))
    found = []
    for name in sorted(first_dirty.keys() | reports.keys()):
        if (directory / name).is_dir():
            start = first_dirty.get(name, 0)
            sizes = {
                base: path.stat().st_size
                for path in (directory / name).iterdir()
                if (base := base_offset_of(path.name)) is not None
            }
            clean, dirty = sealed_bytes(sizes, start)
            report = reports.get(name, PartitionReport())
            found.append(
                Overview(partition=name, first_dirty=start, clean_bytes=clean, dirty_bytes=dirty, report=report)
            )
    return found
