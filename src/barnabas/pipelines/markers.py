"""What an exactly-once sink wrote before: the notes it keeps, and what follows from them. Pure.

Spark runs an epoch of a stream again when it does not know that it was finished. The sink keeps two kinds of notes, as
offsets of consumer groups with a few words of metadata:

- **of a task**, sent with the transaction that has the task's rows: so it is there if, and only if, they are;
- **of an epoch**, committed by the driver when all its tasks are done, with the number of tasks.

In epoch N the note of epoch N-1 has to be there. If it is, a note of this task for epoch N would be younger, so it
would not have expired either: where there is none, the rows were not written. If it is not, nobody knows: the sink
writes nothing. Epoch 0 has no note before it.

A task that was done is not trusted to be the same task: another number of tasks, or a query that makes other rows each
time, gives it other rows. So the note has a fingerprint of the rows, and a replay that differs is refused.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Final

from barnabas.pipelines.errors import MarkerRefused
from barnabas.pipelines.sink_rows import Fingerprint

if TYPE_CHECKING:
    from collections.abc import Iterable

PREFIX: Final = "barnabas-sink-"
_TASK_TEXT: Final = re.compile(r"rows=(\d+) hash=([0-9a-f]{16})")
_EPOCH_TEXT: Final = re.compile(r"tasks=(\d+) run=(\S*)")


@dataclass(frozen=True, slots=True)
class TaskOfEpoch:
    """One task of one epoch, in one run of a query."""

    query: str
    run: str
    epoch: int
    task: int

    @property
    def name(self) -> str:
        """The transactional id of the task, and the group that has its note."""
        return f"{group_of(self.query)}-{self.task}"

    def __str__(self) -> str:
        return f"epoch {self.epoch}, task {self.task} of query {self.query}"


@dataclass(frozen=True, slots=True)
class TaskNote:
    """A task's rows of this epoch are written."""

    epoch: int
    fingerprint: Fingerprint

    def text(self) -> str:
        """The metadata of the group offset."""
        return f"rows={self.fingerprint.rows} hash={self.fingerprint.total:016x}"

    @classmethod
    def of(cls, offset: int, text: str) -> TaskNote:
        """From a group offset. Raises MarkerRefused."""
        parts = _parsed(_TASK_TEXT, text)
        return cls(offset - 1, Fingerprint(int(parts[1]), int(parts[2], 16)))


@dataclass(frozen=True, slots=True)
class EpochNote:
    """All tasks of this epoch are done."""

    epoch: int
    tasks: int
    run: str

    def text(self) -> str:
        """The metadata of the group offset."""
        return f"tasks={self.tasks} run={self.run}"

    @classmethod
    def of(cls, offset: int, text: str) -> EpochNote:
        """From a group offset. Raises MarkerRefused."""
        parts = _parsed(_EPOCH_TEXT, text)
        return cls(offset - 1, int(parts[1]), parts[2])


class Verdict(Enum):
    """What a task has to do with its rows."""

    WRITE = "write them"
    COMPARE = "they are written: look whether they are the same"
    SKIP = "the whole epoch is written"


def group_of(query: str) -> str:
    """The group that has the note of a query's last epoch."""
    return f"{PREFIX}{query}"


def verdict(task: TaskOfEpoch, last: EpochNote | None, own: TaskNote | None) -> Verdict:
    """What follows from the notes that are there. Raises MarkerRefused when they prove nothing."""
    if last is not None and last.epoch == task.epoch:
        return Verdict.SKIP
    if last is not None and last.epoch > task.epoch:
        raise MarkerRefused(
            f"{task}: epochs up to {last.epoch} are written already, so this checkpoint is older than the topic; "
            "go on with the newest checkpoint, or with a new one"
        )
    if task.epoch > 0 and (last is None or last.epoch < task.epoch - 1):
        raise MarkerRefused(
            f"{task}: there is no note that epoch {task.epoch - 1} was written, so nobody knows what was, and nothing "
            "is written now. Notes are offsets of the group "
            f"{group_of(task.query)} and expire after offsets.retention.minutes of silence; a checkpoint that was used "
            "without exactly-once before has none. Look what the topic has, and begin with a new checkpoint behind it"
        )
    if own is not None and own.epoch > task.epoch:
        raise MarkerRefused(f"{task}: epoch {own.epoch} is written already; is another query using this checkpoint?")
    return Verdict.COMPARE if own is not None and own.epoch == task.epoch else Verdict.WRITE


def compare(task: TaskOfEpoch, own: TaskNote, found: Fingerprint) -> None:
    """Whether a task that was done has the same rows now. Raises MarkerRefused."""
    if own.fingerprint != found:
        raise MarkerRefused(
            f"{task}: it wrote {own.fingerprint.rows} rows before, and now has {found.rows} or others. The number of "
            "tasks must not change between a failure and the restart, and a query must make the same rows again; "
            "restart it as it was before"
        )


def strangers(notes: Iterable[tuple[int, TaskNote]], epoch: int, tasks: int) -> list[int]:
    """Tasks that wrote in this epoch in an earlier attempt, and are not among its tasks now."""
    return sorted(task for task, note in notes if task >= tasks and note.epoch == epoch)


def _parsed(form: re.Pattern[str], text: str) -> re.Match[str]:
    parts = form.fullmatch(text)
    if parts is None:
        raise MarkerRefused(f"a note of an exactly-once sink says {text!r}: somebody else committed to its group")
    return parts
