"""What a damaged data directory may lack, and who has to say so: the judge of `files`.

A batch is damaged if one of its bytes is another one or is gone. Nothing else may be lost:

- of a log whose files were not touched, nothing;
- in a damaged segment, damaged batches; and those that are only found by going over a damaged one, because the offset
  index has no entry in between: they are on disk, and out of reach until the segment is mended;
- where a log is refused as a whole, nothing: its files have every byte that they had before the start;
- where everything is read again (`unread`: a crash, and no recovery point), the log ends at the first damaged byte, as
  after a power loss, and a warning names the byte and how many later segments were removed;
- a log whose topic id is another one is kept aside as that of an earlier topic, with all of its files, and a warning
  says so;
- by a wrong number in the checkpoint of log starts, the records before it are deleted ones. That file has no checksum
  (Kafka's format), and such a number is only noticed where it contradicts other files.

Whatever is lost, or served wrong, `log check` names before the start, or the start's log does.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple

from barnabas.protocol.records.batch import CRC_START, read_header
from barnabas.protocol.records.checksum import crc32c
from barnabas.storage.segments.indexes import OffsetIndex
from barnabas.storage.segments.txn_index import ENTRY as ABORTED_ENTRY
from tests.fuzz.rules import BrokenRule

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from barnabas.storage.check import Report

LOG_STARTS: Final = "log-start-offset-checkpoint"
TOPIC_ID: Final = "partition.metadata"


class Stored(NamedTuple):
    """A batch and where it lies."""

    batch: bytes
    offset: int
    segment: str
    position: int
    behind: int
    """The position in its segment from which a reader goes over batches to find this one."""


class Damage(NamedTuple):
    """What was done to which file; `bytes` are those that differ: from the first to the end of the last."""

    path: Path
    what: str
    bytes: tuple[range, ...]

    @property
    def first(self) -> int:
        """The first byte that differs."""
        return self.bytes[0].start

    def touches(self, first: int, end: int) -> bool:
        """Whether one of the bytes from `first` to before `end` is not what it was."""
        return any(part.start < end and first < part.stop for part in self.bytes)


@dataclass
class Served:
    """What a reader gets of one log."""

    batches: list[bytes] = field(default_factory=list)
    """One after another from the log's start, up to its end or to an error."""
    refusal: str | None = None
    """The error that a reader got, if it got one."""
    sought: dict[int, bytes] = field(default_factory=dict)
    """The batches that a reader gets who asks for their offsets."""
    refused: dict[int, str] = field(default_factory=dict)
    """The offsets where such a reader gets an error."""
    expired: int = 0
    """How many segments retention would remove, although no record is old."""
    aborted: list[tuple[int, ...]] = field(default_factory=list)
    """The aborted transactions that readers of committed records are told of."""


@dataclass
class Case:
    """A damaged directory, before and after it was loaded."""

    data: Path
    mode: str
    damage: Damage
    report: Report
    """What `log check` found before the start."""
    said: Sequence[str] = ()
    """The warnings and errors of the start."""
    is_started: bool = False
    """Whether a whole broker was started on it, and stopped, before its logs were read."""
    before: Mapping[str, bytes] = field(default_factory=dict)
    """The segments' files before the start, by their paths in the directory."""

    def segments(self, name: str) -> dict[str, bytes]:
        """The segments' files of a log now."""
        return segments(self.data, self.data / name)

    def is_checked(self) -> bool:
        """Whether `log check` names the damaged file, or the log that it belongs to, in an error or a warning."""
        place = self.damage.path if self.damage.path.parent == self.data else self.damage.path.parent
        found = [*self.report.errors, *self.report.warnings]
        return any(place in (each.path, *each.path.parents) or place.name in each.what for each in found)

    def is_said(self, name: str) -> bool:
        """Whether the start's log names the log or the damaged file."""
        return any(name in line or self.damage.path.name in line for line in self.said)


def stored(data: Path) -> dict[str, list[Stored]]:
    """Every batch of every log of a directory that is not damaged."""
    return {path.name: list(_batches(path)) for path in sorted(data.iterdir()) if path.is_dir()}


def segments(data: Path, under: Path) -> dict[str, bytes]:
    """The files of segments in a directory, by their paths in `data`."""
    return {str(path.relative_to(data)): path.read_bytes() for path in sorted(under.rglob("*.log"))}


def aborted(data: Path, name: str) -> list[tuple[int, ...]]:
    """The aborted transactions of a log."""
    indexes = sorted((data / name).glob("*.txnindex"))
    return [entry[1:] for path in indexes for entry in ABORTED_ENTRY.iter_unpack(path.read_bytes())]


def _batches(log: Path) -> Iterable[Stored]:
    for path in sorted(log.glob("*.log")):
        base, data, position = int(path.stem), path.read_bytes(), 0
        index = path.with_suffix(".index")
        entries = [(-1, 0), *OffsetIndex.ENTRY.iter_unpack(index.read_bytes() if index.exists() else b"")]
        while position < len(data):
            header = read_header(data, position)
            entry = entries[bisect_right(entries, header.base_offset - base, key=lambda each: each[0]) - 1]
            batch = data[position : position + header.size]
            yield Stored(batch, header.base_offset, path.name, position, entry[1])
            position += header.size


def is_one_of(batch: bytes, expected: Iterable[Stored]) -> bool:
    """Whether the batch is one of these, but for the leader epoch, which no CRC covers."""
    return any(_same(batch, each.batch) for each in expected)


def _same(batch: bytes, other: bytes) -> bool:
    return batch[:12] == other[:12] and batch[16:] == other[16:]


def judge(case: Case, name: str, served: Served, expected: Sequence[Stored], ended: Sequence[tuple[int, ...]]) -> str:
    """What became of one log; raises BrokenRule."""
    lost = [each for each in expected if not _same(served.sought.get(each.offset, b""), each.batch)]
    end = expected[-1].offset + 1 if expected else 0
    wrong = [batch for batch in served.batches if not is_one_of(batch, expected) and not _is_new(case, batch, end)]
    place = case.damage.path.parent
    tells_all = _hides_nothing(served.aborted, ended)
    if not lost and not wrong and not served.expired and tells_all and served.refusal is None:
        return "served whole"
    shown = (
        f"{name}: {len(lost)} of {len(expected)} batches cannot be read, {len(wrong)} are wrong, {served.expired} "
        f"segments would expire; a reader is told {served.refusal or next(iter(served.refused.values()), None)}"
    )
    if place not in (case.data, case.data / name):
        raise BrokenRule(f"{shown}; it was not damaged")
    if not (case.is_checked() or case.is_said(name)):
        raise BrokenRule(f"{shown}; neither `log check` nor the start says so")
    if served.refusal is not None and not served.batches and not served.sought:
        _judge_refused(case, name, shown)
        return "log refused, its files as they were"
    if lost and case.damage.path.name == LOG_STARTS:
        return "log start damaged, and said"
    if case.is_started and case.damage.path.name == TOPIC_ID and not served.batches:
        _judge_set_aside(case, name, shown)
        return "log kept aside for another topic id, and said"
    if served.expired:
        raise BrokenRule(shown)
    if case.damage.path.suffix == ".log":
        return _judge_segment(case, name, shown, expected, lost, wrong)
    if lost or wrong or served.refusal is not None:
        raise BrokenRule(f"{shown}; no segment was damaged")
    if not case.is_checked():
        raise BrokenRule(f"{shown}; the aborted transactions are wrong, and `log check` does not say so")
    return "aborted transactions wrong, and found by log check"


def _is_new(case: Case, batch: bytes, end: int) -> bool:
    """Whether a broker that was started has written the batch: coordinators finish what was open."""
    header = read_header(batch)
    return case.is_started and header.base_offset >= end and crc32c(batch[CRC_START:]) == header.crc


def _hides_nothing(aborted: Sequence[tuple[int, ...]], ended: Sequence[tuple[int, ...]]) -> bool:
    """Whether readers are told of the same aborted transactions; an earlier last stable offset costs them nothing."""
    return len(aborted) == len(ended) and all(
        entry[:3] == right[:3] and entry[3] <= right[3] for entry, right in zip(aborted, ended, strict=True)
    )


def _judge_refused(case: Case, name: str, shown: str) -> None:
    """Whoever is not served has lost nothing yet: the files are there."""
    before = {path: data for path, data in case.before.items() if path.startswith(f"{name}/")}
    if case.segments(name) != before:
        raise BrokenRule(f"{shown}; and its segments are not what they were before the start")


def _judge_set_aside(case: Case, name: str, shown: str) -> None:
    """A log of another topic may be that of an earlier one: it is kept, and a new one is begun in its place."""
    [kept] = case.data.glob(f"{name}.*-stray")
    before = [data for path, data in case.before.items() if path.startswith(f"{name}/")]
    if list(segments(case.data, kept).values()) != before:
        raise BrokenRule(f"{shown}; {kept.name} has other segments than the log had")
    if not case.is_said(kept.name):
        raise BrokenRule(f"{shown}; nobody says that the log is {kept.name} now")


def _judge_segment(
    case: Case, name: str, shown: str, expected: Sequence[Stored], lost: Sequence[Stored], wrong: Sequence[bytes]
) -> str:
    damaged = [each for each in expected if _is_hit(case.damage, each)]
    if case.mode == "unread":
        if any(crc32c(batch[CRC_START:]) != read_header(batch).crc for batch in wrong):
            raise BrokenRule(f"{shown}; a batch is served whose CRC is wrong although all were read again")
        first = min((each.offset for each in damaged), default=0)
        if any(each.offset < first for each in lost):
            raise BrokenRule(f"{shown}; some of them lie before the damage")
        if any(each not in damaged for each in lost) and not any(
            "Truncated" in line and name in line for line in case.said
        ):
            raise BrokenRule(f"{shown}; no warning says that the log was cut")
        return "log cut at the damage, and said" if lost else "wrong offset served, and found by log check"
    out_of_reach = [each for each in expected if _is_behind(case.damage, each)]
    more = [each.offset for each in lost if each not in damaged and each not in out_of_reach]
    if more:
        raise BrokenRule(f"{shown}; those at {more} were not damaged")
    if not case.is_checked():
        raise BrokenRule(f"{shown}; `log check` does not say so")
    return "damaged batches served or refused, and found by log check"


def _is_hit(damage: Damage, batch: Stored) -> bool:
    return batch.segment == damage.path.name and damage.touches(batch.position, batch.position + len(batch.batch))


def _is_behind(damage: Damage, batch: Stored) -> bool:
    """Whether a reader goes over a damaged batch to find this one."""
    return batch.segment == damage.path.name and damage.touches(batch.behind, batch.position)
