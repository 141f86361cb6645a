"""What a table is to a load: rows and the offsets that they came from, in one commit.

A commit is named by the pipeline and by offset ranges, and by nothing that a lost checkpoint or a new process would
change. Whoever opens the table later reads from it where to go on.

The invariant of every format: for each partition, the table holds exactly the records before `Position.offsets`. Files
that no commit names are nobody's, and are removed by age only: a commit whose outcome is not known may still need them.

A format says how a table is looked at (`_look`), and how a note and files are added at once to what was seen
(`_append`); when a commit may be made is decided here, for all of them.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar, Final, NamedTuple, Self, TypeVar

from barnabas.pipelines.tables.contract import CommitOutcome, Compaction, DataFile, Position, Size, TableOutbox
from barnabas.pipelines.tables.errors import Fenced, FilesGone, Overtaken, SchemaConflict, TableError
from barnabas.pipelines.tables.files.access_errors import unwritable
from barnabas.pipelines.tables.files.destinations import is_remote
from barnabas.pipelines.tables.files.schemas import merge_columns, plain_schema
from barnabas.pipelines.tables.notes import Note, next_note
from barnabas.pipelines.tables.rules import advance, check_owner

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence
    from datetime import timedelta

    import pyarrow as pa

    from barnabas.pipelines.spark.read.offsets import OffsetRange
    from barnabas.pipelines.tables.files.destinations import Destination

TRIES: Final = 5
"""How often a commit is tried again after another one, such as a compaction's, came first."""

T = TypeVar("T")

log = logging.getLogger("barnabas.pipelines")


class CommitConflict(Exception):
    """Another commit came first, or the outcome of ours is not known: look again."""


class TableVersion(NamedTuple):
    """A table at one moment: the note of its last commit, and the format's own handle of that version."""

    note: Note | None
    version: Any


class Table(ABC):
    """A table of some format. Methods that change it raise a TableError and then have changed nothing."""

    format: ClassVar[str]
    """`parquet`, `delta` or `iceberg`."""
    location: str
    """Where it is: a path, an address or the name in a catalog."""
    partition_by: tuple[str, ...]
    """The columns it is partitioned by."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def position(self, pipeline: str) -> Position | None:
        """How far the pipeline has come; None if it never committed. Raises ForeignTable for somebody else's table."""
        note = self.own_note(pipeline)
        return None if note is None else note.position

    def outbox(self, pipeline: str) -> TableOutbox | None:
        """What the pipeline's last commit promised to another table."""
        note = self.own_note(pipeline)
        return None if note is None else note.outbox

    def own_note(self, pipeline: str) -> Note | None:
        """Position and promise in one look. Raises ForeignTable."""
        note = self.last_note()
        _check_note(note, pipeline, self.location)
        return note

    def commit(
        self,
        pipeline: str,
        ranges: Sequence[OffsetRange],
        topic_ids: Mapping[str, str],
        files: Sequence[DataFile],
        schema: pa.Schema,
        *,
        outbox: TableOutbox | None = None,
        decoder: str | None = None,
        after: int | None = None,
    ) -> CommitOutcome:
        """Add files and move the position past the ranges, both or nothing; the first commit makes the table.

        The ranges begin where the position is. Ranges that are all in the table already are skipped; anything else is
        refused. So is a commit that is to follow the one of the number `after` (0: none), and does not: the promises of
        one that came between would be forgotten. Raises Fenced, ForeignTable, TopicReplaced, SchemaConflict, FilesGone.
        """
        self._hold()
        ours: set[str] = set()

        def attempt() -> CommitOutcome:
            before, version = self._look()
            _check_note(before, pipeline, self.location)
            self._check_columns(version, schema)
            position = None if before is None else before.position
            offsets = advance(position, ranges, topic_ids, self.location)
            if offsets is None:
                return CommitOutcome.COMMITTED if before is not None and before.id in ours else CommitOutcome.ALREADY
            if after is not None and after != (0 if position is None else position.version):
                raise Fenced.by_other(self.location, pipeline)
            self._check_files(version, files)
            note = next_note(position, pipeline, offsets, ranges, topic_ids, files, outbox, decoder)
            ours.add(note.id)
            self._append(version, note, files, plain_schema(schema))
            return CommitOutcome.COMMITTED

        def last_outcome() -> CommitOutcome | None:
            last = self._look().note
            return CommitOutcome.COMMITTED if last is not None and last.id in ours else None

        return self._retry_on_conflict(attempt, last_outcome)

    def _retry_on_conflict(
        self,
        attempt: Callable[[], T],
        last_outcome: Callable[[], T | None] = lambda: None,
        *,
        upkeep: str | None = None,
    ) -> T:
        """Look at the table and change it, again if another commit came between. If that never ends it raises Fenced,
        and TableUnreachable if files cannot be written.

        `last_outcome` says what became of the last try, if it was made all the same; `upkeep` what was done
        meanwhile, if that is nothing for which others would have to stop: Overtaken is raised then.
        """
        for _ in range(TRIES):
            try:
                return attempt()
            except CommitConflict as conflict:
                log.warning("A commit to %s is tried again: %s", self.location, conflict)
            except OSError as error:
                raise unwritable(self.location, error) from error
        if (outcome := last_outcome()) is not None:
            return outcome
        if upkeep is not None:
            raise Overtaken(f"{self.location} was changed by other jobs {TRIES} times while {upkeep}: try again")
        raise Fenced(
            f"{self.location} was changed by other jobs {TRIES} times while a commit was tried: another job writes "
            "to this table. Stop it, and start again. Nothing was added."
        )

    def _check_columns(self, version: Any, schema: pa.Schema) -> None:
        """Raise SchemaConflict unless rows of this schema fit into the table as it is."""
        known = self._schema_of(version)
        if known is None:
            self._destination_of(version).check_partition_columns(schema)
        elif not merge_columns(plain_schema(known), plain_schema(schema), self.location).equals(plain_schema(known)):
            lacking = ", ".join(name for name in schema.names if name not in known.names)
            raise SchemaConflict(f"{self.location} has no column {lacking or 'for all fields'}: add it first (evolve)")

    def _check_files(self, version: Any, files: Sequence[DataFile]) -> None:
        """Raise FilesGone if a file was removed since; at an address only those are looked for that are from before."""
        destination = self._destination_of(version)
        for file in files:
            if (file.footer is None or not is_remote(destination.root)) and not destination.has(file.path):
                raise FilesGone(f"{file.path} was written for {self.location} and is gone: nothing was added.")

    @abstractmethod
    def claim(self) -> None:
        """Take the table for writing, where a format can hold it; finish what a crash left. Raises Fenced."""

    def _hold(self) -> None:
        """Take the table for a commit. Raises Fenced."""
        self.claim()

    def last_note(self) -> Note | None:
        """The note of the last commit, looked up now; None while there is no table.

        Raises ForeignTable if there is something that no pipeline has loaded.
        """
        return self._look().note

    @abstractmethod
    def _look(self) -> TableVersion:
        """The table as it is now."""

    def _schema_of(self, _version: Any) -> pa.Schema | None:
        """The columns of a version that was seen; a format for which it is dear to look again takes them from it."""
        return self.schema()

    def _destination_of(self, _version: Any) -> Destination:
        """The destination of a version that was seen, as above."""
        return self.destination()

    @abstractmethod
    def _append(self, version: Any, note: Note, files: Sequence[DataFile], schema: pa.Schema) -> None:
        """Add files and the note at once to the version that was seen, or raise CommitConflict."""

    @abstractmethod
    def schema(self) -> pa.Schema | None:
        """The table's columns; None while there is no table."""

    @abstractmethod
    def evolve(self, schema: pa.Schema) -> None:
        """Add the columns that the table lacks. Raises SchemaConflict if one has another type there."""

    @abstractmethod
    def destination(self) -> Destination:
        """Where and how tasks write files for this table; it can be sent to executors."""

    @abstractmethod
    def size(self) -> Size:
        """How much it holds."""

    @abstractmethod
    def compact(self, target_bytes: int) -> Compaction:
        """Merge files that are smaller than this; rows and position stay."""

    @abstractmethod
    def expire(self, older_than: timedelta) -> int:
        """Forget versions that are so old, with the files that only they need; how many were dropped."""

    @abstractmethod
    def remove_orphans(self, older_than: timedelta, *, but: Collection[str] = ()) -> int:
        """Remove data files that no commit names and that were written so long ago; how many there were.

        Files that are promised to the table are to stay: `but` has their paths.
        """

    @abstractmethod
    def close(self) -> None:
        """Let the table go; another job may have it now."""


def _check_note(note: Note | None, pipeline: str, location: str) -> None:
    if note is not None:
        check_owner(note.pipeline, pipeline, location)


def same_partitioning(known: Sequence[str], wanted: Sequence[str], location: str) -> tuple[str, ...]:
    """The partitioning of a table that is there. Raises SchemaConflict if another one was asked for."""
    if wanted and tuple(wanted) != tuple(known):
        raise SchemaConflict(
            f"{location} is partitioned by {', '.join(known) or 'nothing'}, not by {', '.join(wanted)}: that cannot "
            "change. Leave the partitioning out, or load into another table."
        )
    return tuple(known)


def require_note(note: Note | None, location: str) -> Note:
    """The note of a table that somebody has loaded. Raises TableError if there is no table."""
    if note is None:
        raise TableError(f"there is no table at {location}")
    return note
