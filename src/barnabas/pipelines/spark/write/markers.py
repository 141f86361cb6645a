"""What an exactly-once sink wrote before: the notes it keeps, and what follows from them. Pure.

Spark runs an epoch of a stream again when it does not know that it was finished. The sink keeps two kinds of notes, as
offsets of consumer groups with a few words of metadata:

- **of a task**, sent with the transaction that has the task's rows: so it is there if, and only if, they are;
- **of an epoch**, committed by the driver when all its tasks are done, with the number of tasks.

In epoch N the note of epoch N-1 has to be there. If it is, a note of this task for epoch N would be younger, so it
would not have expired either: where there is none, the rows were not written. If it is not, nobody knows: the sink
writes nothing. Epoch 0 has no note before it.

A task that was done is not trusted to be the same task: with another number of tasks, or a query that makes other rows
each time, it has other rows. So its note has a fingerprint of the rows, and a replay that differs is refused.

That is not enough for the other tasks. If an earlier run wrote a part of the epoch, a task without a note may write
only if those that have one are still the same, and no task knows that of another. So the epoch is replayed in two
steps. In the first nobody writes: tasks that were done compare, the others note the fingerprint of their rows (a
survey). The driver, which sees all tasks, approves the survey if every task that was done has compared, and fails the
query. In the second, tasks write what they have surveyed, and nothing else.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any, ClassVar, Final, Self

from barnabas.pipelines.errors import MarkerRefused
from barnabas.pipelines.spark.write.rows import Fingerprint

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

PREFIX: Final = "barnabas-sink-"
_LAYOUT: Final = (
    "The number of tasks must not change between a failure and the restart, and a query must make the same rows again; "
    "restart it as it was before"
)


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

    @property
    def survey(self) -> str:
        """The group that has the fingerprint of the rows that the task would write."""
        return f"{group_of(self.query)}-survey-{self.task}"

    def __str__(self) -> str:
        return f"epoch {self.epoch}, task {self.task} of query {self.query}"


@dataclass(frozen=True, slots=True)
class MarkerNote(ABC):
    """What a group's offset says: its number is that of the epoch after, its metadata has the rest."""

    epoch: int
    run: str
    """The run of the query that made the note."""
    form: ClassVar[re.Pattern[str]]

    @classmethod
    def of(cls, offset: int, text: str) -> Self:
        """From a group offset. Raises MarkerRefused."""
        parts = cls.form.fullmatch(text)
        if parts is None:
            raise MarkerRefused(f"a note of an exactly-once sink says {text!r}: somebody else committed to its group")
        return cls(epoch=offset - 1, run=parts["run"], **cls._content(parts))

    @abstractmethod
    def text(self) -> str:
        """The metadata of the group offset."""

    @staticmethod
    @abstractmethod
    def _content(parts: re.Match[str]) -> dict[str, Any]:
        """The fields of this kind of note."""


@dataclass(frozen=True, slots=True)
class TaskNote(MarkerNote):
    """A task's rows of this epoch are written; or, in a survey, would be."""

    fingerprint: Fingerprint
    form = re.compile(r"rows=(?P<rows>\d+) hash=(?P<hash>[0-9a-f]{16}) run=(?P<run>\S*)")

    def text(self) -> str:
        """The metadata of the group offset."""
        return f"rows={self.fingerprint.rows} hash={self.fingerprint.total:016x} run={self.run}"

    @staticmethod
    def _content(parts: re.Match[str]) -> dict[str, Any]:
        return {"fingerprint": Fingerprint(int(parts["rows"]), int(parts["hash"], 16))}


@dataclass(frozen=True, slots=True)
class EpochNote(MarkerNote):
    """All tasks of this epoch are done; or, as an approval, surveyed."""

    tasks: int
    form = re.compile(r"tasks=(?P<tasks>\d+) run=(?P<run>\S*)")

    def text(self) -> str:
        """The metadata of the group offset."""
        return f"tasks={self.tasks} run={self.run}"

    @staticmethod
    def _content(parts: re.Match[str]) -> dict[str, Any]:
        return {"tasks": int(parts["tasks"])}


class Verdict(Enum):
    """What a task has to do with its rows."""

    WRITE = "write them"
    WRITE_SURVEYED = "write them if they are those of the survey"
    SURVEY = "note them: an earlier run wrote a part of the epoch"
    COMPARE = "they are written: look whether they are the same"
    SKIP = "the whole epoch is written"

    @property
    def writes(self) -> bool:
        """Whether rows are sent."""
        return self in (Verdict.WRITE, Verdict.WRITE_SURVEYED)


def group_of(query: str) -> str:
    """The group that has the note of a query's last epoch."""
    return f"{PREFIX}{query}"


def approval_of(query: str) -> str:
    """The group that has the driver's approval of a survey."""
    return f"{group_of(query)}-replay"


def task_of(group: str, query: str) -> int | None:
    """The number of the task whose notes a group has; None if it is another group."""
    number = group.removeprefix(f"{group_of(query)}-")
    return int(number) if number != group and number.isdecimal() else None


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
            f"{task}: there is no note that epoch {task.epoch - 1} was written, so it is not known what was, and "
            "nothing is written now. Notes are offsets of the group "
            f"{group_of(task.query)} and expire after offsets.retention.minutes of silence; a checkpoint that was used "
            "without exactly-once before has none. Look what the topic has, and begin with a new checkpoint behind it"
        )
    if own is not None and own.epoch > task.epoch:
        raise MarkerRefused(f"{task}: epoch {own.epoch} is written already; is another query using this checkpoint?")
    return Verdict.COMPARE if own is not None and own.epoch == task.epoch else Verdict.WRITE


def replay_verdict(task: TaskOfEpoch, approval: EpochNote | None, survey: TaskNote | None) -> Verdict:
    """The same for a task without a note, in an epoch of which an earlier run wrote a part. Raises MarkerRefused."""
    if approval is None or approval.epoch != task.epoch:
        return Verdict.SURVEY
    if survey is None or survey.epoch != task.epoch or survey.run != approval.run:
        raise MarkerRefused(f"{task}: it had no rows when the replay was surveyed, and now it has. {_LAYOUT}")
    return Verdict.WRITE_SURVEYED


def compare(task: TaskOfEpoch, expected: TaskNote, found: Fingerprint) -> None:
    """Whether a task has the rows that it had before. Raises MarkerRefused."""
    if expected.fingerprint != found:
        raise MarkerRefused(
            f"{task}: it had {expected.fingerprint.rows} rows before, and now has {found.rows} or others. {_LAYOUT}"
        )


def earlier_writers(notes: Mapping[int, TaskNote], epoch: int, run: str) -> set[int]:
    """The tasks that wrote their rows of an epoch in an earlier run."""
    return {task for task, note in notes.items() if note.epoch == epoch and note.run != run}


def check_replay(query: str, epoch: int, uncompared: Collection[int], tasks: int, approval: EpochNote | None) -> None:
    """What only the driver can see: that no task is missing. Raises MarkerRefused."""
    if uncompared:
        raise MarkerRefused(
            f"epoch {epoch} of query {query}: tasks {', '.join(map(str, sorted(uncompared)))} wrote rows of it before, "
            f"and have none now. {_LAYOUT}"
        )
    if approval is not None and approval.epoch == epoch and approval.tasks != tasks:
        raise MarkerRefused(
            f"epoch {epoch} of query {query} had {approval.tasks} tasks when it was surveyed, and now has {tasks}. "
            f"{_LAYOUT}"
        )
