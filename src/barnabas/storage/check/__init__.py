"""Checks the files of log directories: an fsck that shares no code with what writes them.

Every format is read here once more, from its description alone, so that a mistake of the writer is not repeated by the
reader. Nothing is changed, and memory stays small: a segment is read once, batch by batch, and its indexes are followed
alongside.

An *error* is a promise that the files break: damage, offsets that overlap, an index that would lead a reader astray, a
checkpoint beyond the log's end. A *warning* is something that the next start repairs or that deserves a look. The
directory should be at rest; beside a running broker, the newest segment may be caught in the middle of a write.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from barnabas.storage.check.partition import PartitionCheck
from barnabas.storage.check.report import Finding, Report, Severity
from barnabas.storage.check.text import read_checkpoint, read_number, read_text

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

__all__ = ["Finding", "Report", "Severity", "check"]

_PARTITION: Final = re.compile(r"(.+)-(\d+)(\.[^.]+-future)?")
_GOING: Final = re.compile(r".+-(delete|stray)")


def check(path: Path, watched: Callable[[int], None] = lambda size: None, *, in_use: bool = False) -> Report:
    """Check a partition's directory, or a log directory with all its partitions.

    `watched` is told of the bytes of each batch when it was checked. What a broker writes when it stops is not missed
    while the directory is `in_use`.
    """
    report = Report(watched=watched, in_use=in_use)
    if not path.is_dir():
        report.error(path, None, "is not a directory")
    elif (path / "leader-epoch-checkpoint").exists() or any(path.glob("[0-9]*.log")):
        PartitionCheck(path, report).check()
    else:
        _check_root(path, report)
    return report


def _check_root(root: Path, report: Report) -> None:
    ends: dict[tuple[str, int], int] = {}
    for entry in sorted(root.iterdir()):
        if not entry.is_dir() or _GOING.fullmatch(entry.name):
            continue
        match = _PARTITION.fullmatch(entry.name)
        if match is None:
            report.warn(entry, None, "is not a partition's directory")
            continue
        end = PartitionCheck(entry, report).check()
        if match[3] is None:
            ends[match[1], int(match[2])] = end
    for name in ("recovery-point", "log-start", "replication", "cleaner"):
        path = root / f"{name}-offset-checkpoint"
        if path.exists():
            _check_offsets(path, name, ends, report)
    properties = root / "meta.properties"
    if not properties.exists():
        report.warn(properties, None, "is missing: the directory does not know its broker")
    elif not any(line.startswith("version=") for line in read_text(properties).splitlines()):
        report.error(properties, None, "does not hold a version")


def _check_offsets(path: Path, name: str, ends: dict[tuple[str, int], int], report: Report) -> None:
    seen = set()
    for topic, *numbers in read_checkpoint(path, 3, report):
        partition, offset = map(read_number, numbers)
        if partition is None or offset is None:
            report.error(path, None, f"{topic} {' '.join(numbers)!r} is not a topic, a partition and an offset")
            continue
        if (topic, partition) in seen:
            report.error(path, None, f"{topic}-{partition} stands there twice")
        seen.add((topic, partition))
        end = ends.get((topic, partition))
        if end is not None and offset > end:
            what = f"{topic}-{partition} is at {offset}, but its log ends at {end}"
            if name == "replication":
                report.warn(path, None, what)
            else:
                report.error(path, None, what)
