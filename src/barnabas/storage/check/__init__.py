"""Checks the files of log directories: an fsck that shares no code with what writes them.

Every format is read here once more, from its description alone, so that a mistake of the writer is not repeated by the
reader. Nothing is changed, and memory stays small: a segment is read once, batch by batch, and its indexes are followed
alongside.

An *error* is a promise that the files break: damage, offsets that overlap, an index that would lead a reader astray,
a checkpoint beyond the log's end, offsets that no segment has. A *warning* is something that the next start repairs
or that deserves a look, a *note* something that is right and good to know. The directory should be at rest; beside a
running broker, the newest segment may be caught in the middle of a write.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from barnabas.model.remedies import Remedy, RemedyKind
from barnabas.storage.check.partition import OFFSETS_TOPIC, Extent, PartitionCheck
from barnabas.storage.check.report import Finding, Report, Severity
from barnabas.storage.check.text import read_checkpoint, read_number, read_text

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

__all__ = ["Finding", "Report", "Severity", "check"]

_PARTITION: Final = re.compile(r"(.+)-(\d+)(\.[^.]+-future)?")
_CHECKPOINTS: Final = ("recovery-point", "log-start", "replication", "cleaner")
_CLEAN_STOP: Final = ".kafka_cleanshutdown"
_TAKEN: Final = b"taken by a start\n"
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
        root = path.absolute().parent
        cleaned = _read_offsets(root / "cleaner-offset-checkpoint", Report())
        match = _PARTITION.fullmatch(path.absolute().name)
        key = (match[1], int(match[2])) if match is not None else ("", 0)
        unread = _unread(root, _read_offsets(root / "recovery-point-offset-checkpoint", Report()), key)
        PartitionCheck(path, report, cleaned_to=cleaned.get(key), unread=unread).check()
    else:
        _check_root(path, report)
    if report.unsequenced:
        report.note(
            path,
            None,
            f"{report.unsequenced} batches of {OFFSETS_TOPIC} have no sequence number, as Barnabas wrote them before. "
            "Barnabas reads them, Apache Kafka cannot clean them",
            Remedy(RemedyKind.SEQUENCE_OFFSETS, str(path)),
        )
    return report


def _check_root(root: Path, report: Report) -> None:
    offsets = {name: _read_offsets(root / f"{name}-offset-checkpoint", report) for name in _CHECKPOINTS}
    found: dict[tuple[str, int], Extent] = {}
    for entry in sorted(root.iterdir()):
        if not entry.is_dir() or _GOING.fullmatch(entry.name):
            continue
        match = _PARTITION.fullmatch(entry.name)
        if match is None:
            report.warn(entry, None, "is not a partition's directory")
            continue
        key = match[1], int(match[2])
        unread = _unread(root, offsets["recovery-point"], key)
        extent = PartitionCheck(entry, report, cleaned_to=offsets["cleaner"].get(key), unread=unread).check()
        if match[3] is None:
            found[key] = extent
    for name, of_partitions in offsets.items():
        _check_ends(root / f"{name}-offset-checkpoint", of_partitions, found, report)
    if _was_clean(root):
        _check_starts(root, offsets["log-start"], found, report)
    properties = root / "meta.properties"
    if not properties.exists():
        report.warn(properties, None, "is missing: the directory does not know its broker")
    elif not any(line.startswith("version=") for line in read_text(properties).splitlines()):
        report.error(properties, None, "does not hold a version")


def _unread(root: Path, recovery_points: Mapping[tuple[str, int], int], key: tuple[str, int]) -> int | None:
    """The offset from which on the next start reads a log again; None after a clean stop."""
    return None if _was_clean(root) else recovery_points.get(key, 0)


def _was_clean(root: Path) -> bool:
    """Whether the last stop was clean, and no start came since."""
    mark = root / _CLEAN_STOP
    return mark.exists() and _TAKEN not in mark.read_bytes()


def _read_offsets(path: Path, report: Report) -> dict[tuple[str, int], int]:
    """The offsets that a checkpoint has for partitions."""
    offsets: dict[tuple[str, int], int] = {}
    for topic, *numbers in read_checkpoint(path, 3, report) if path.exists() else ():
        partition, offset = map(read_number, numbers)
        if partition is None or offset is None:
            report.error(path, None, f"{topic} {' '.join(numbers)!r} is not a topic, a partition and an offset")
            continue
        if (topic, partition) in offsets:
            report.error(path, None, f"{topic}-{partition} stands there twice")
        offsets[topic, partition] = offset
    return offsets


def _check_ends(
    path: Path, offsets: Mapping[tuple[str, int], int], found: Mapping[tuple[str, int], Extent], report: Report
) -> None:
    """No checkpoint is beyond the end of a log."""
    for (topic, partition), offset in offsets.items():
        extent = found.get((topic, partition))
        if extent is not None and offset > extent.end:
            what = f"{topic}-{partition} is at {offset}, but its log ends at {extent.end}"
            if path.name.startswith("replication"):
                report.warn(path, None, what)
            else:
                report.error(path, None, what)


def _check_starts(
    root: Path, starts: Mapping[tuple[str, int], int], found: Mapping[tuple[str, int], Extent], report: Report
) -> None:
    """After a clean stop, no log begins later than its checkpoint says."""
    for (topic, partition), offset in starts.items():
        extent = found.get((topic, partition))
        if extent is not None and offset < extent.base:
            report.error(
                root / f"{topic}-{partition}",
                None,
                f"the log starts at {offset}, but its first segment begins at {extent.base}: one before it is missing",
            )
