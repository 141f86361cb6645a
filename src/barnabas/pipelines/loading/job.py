"""The driver of a load: plans rounds, has Spark run their tasks, and commits.

What is kept where: the table has rows and offsets, in one commit; the dead-letter table gets its files after they were
promised in that commit (`Outbox`), so that a crash between the two is made good by the next start; the consumer group
gets the offsets last, for people and tools to see the lag. Only the table decides where to go on.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

from barnabas.model.base_error import BarnabasError
from barnabas.pipelines.cluster import ClusterView
from barnabas.pipelines.decode.choosing import choose_decoder
from barnabas.pipelines.decode.contract import METADATA, Decoder
from barnabas.pipelines.decode.tombstones import MarkedTombstones
from barnabas.pipelines.errors import InvalidOption, PipelineError
from barnabas.pipelines.loading.agreement import agree
from barnabas.pipelines.loading.dead_letters import check_letters, deliver, promise
from barnabas.pipelines.loading.plan import ROUND_OFFSETS, Piece, Round, check_position, plan_round
from barnabas.pipelines.loading.progress import LoadReport, Progress
from barnabas.pipelines.loading.reports import Counted, Reporter, Reports, key
from barnabas.pipelines.loading.same_decoder import check_decoder
from barnabas.pipelines.loading.stopping import Stopping, run_beside
from barnabas.pipelines.loading.task import Done, Work, run_task, table_columns
from barnabas.pipelines.offsets import OffsetRange, between, from_text
from barnabas.pipelines.positions import AtOffsets, Edge, Position, moves, offsets_at
from barnabas.pipelines.quiet import QUIET
from barnabas.pipelines.reading import reader_properties
from barnabas.pipelines.selection import Selection, can_name_a_topic
from barnabas.pipelines.tables.contract import Outcome
from barnabas.pipelines.tables.errors import Fenced, ForeignTable, SchemaConflict, TopicReplaced
from barnabas.pipelines.tables.opening import dead_letters_location, open_table
from barnabas.pipelines.tables.rules import check_topics
from barnabas.pipelines.tables.schemas import without
from barnabas.pipelines.tables.targets import DEFAULT_CATALOG
from barnabas.pipelines.tables.writing import DATE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    import pyarrow as pa
    from pyspark.sql import SparkSession

    from barnabas.model.ids import TopicPartition
    from barnabas.pipelines.tables.contract import Position as TablePosition
    from barnabas.pipelines.tables.table import Table

SPARK: Final[Mapping[str, object]] = {
    **QUIET,
    "spark.ui.enabled": False,
    "spark.driver.memory": "512m",
}
"""Spark's settings for a session of our own: rows never reach the JVM, so it needs little."""
ALONE: Final[Mapping[str, object]] = {
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.ui.enabled": False,
}
"""And those for a session on this machine, which nobody else has to reach: Spark's UI would listen on all addresses."""
MASTER: Final = "local[*,3]"
NAME_SECONDS: Final = 10.0
"""How long a load that is to come back waits for a host of the brokers' name: it may be starting, or misspelt."""
TICK_SECONDS: Final = 0.2
GROUP_SECONDS: Final = 10.0
"""How long a load waits for the coordinator of its group, and how long it lets one be that did not answer."""

log = logging.getLogger("barnabas.pipelines")


def load(
    topic: str,
    to: str,
    *,
    format: str | None = None,
    bootstrap_servers: str = "localhost:9092",
    name: str | None = None,
    decode: str | Decoder = "bytes",
    schema: str | None = None,
    framing: str = "auto",
    mark_tombstones: bool = False,
    partition_by: Sequence[str] = (),
    starting_offsets: str = "earliest",
    every: float | None = None,
    group: str | None = None,
    max_offsets_per_commit: int = ROUND_OFFSETS,
    fail_on_data_loss: bool = True,
    spark: SparkSession | None = None,
    master: str | None = None,
    spark_config: Mapping[str, object] | None = None,
    client: Mapping[str, object] | None = None,
    catalog: str = DEFAULT_CATALOG,
    options: Mapping[str, str] | None = None,
    on_progress: Callable[[Progress], None] | None = None,
    on_step: Callable[[str], None] | None = None,
    verbose: bool = True,
) -> LoadReport:
    """Load a topic into a table, from where the table stands to where the topic ends now; then come back.

    `to`, `format`, `partition_by`, `catalog` and `options` say which table (`tables.opening.open_table`): without a
    format it is the one of the table that is there, and plain Parquet for a new one; `decode`,
    `schema` and `framing` how values become columns (`decode.choosing.choose_decoder`), or a decoder of your own;
    `mark_tombstones` adds a column that is true where a record has no value. With
    `every` it goes on, looking so often (seconds) for more, until it is interrupted. `name` is that of the pipeline,
    which owns the table, `load-TOPIC` unless told otherwise, and the consumer group `group` that shows the progress is
    called the same. `starting_offsets` counts only for a table that is not there yet. `spark` is a session that is
    there, otherwise one is made for `master` with `spark_config`, and what its Java process writes to standard error is
    shown if `verbose`; `client` has Kafka's client properties. `on_step` is told what is waited for, before there is
    any progress.

    Raises PipelineError, above all its TableErrors, before anything is written or with nothing half-written; and
    KeyboardInterrupt, if it is interrupted, between two commits.
    """
    if every is not None and every <= 0:
        raise InvalidOption(f"a load looks for more every so often, and {every:g} s is no time to wait: give 30s")
    if not can_name_a_topic(topic):
        raise InvalidOption(f"{topic!r} cannot be the name of a topic; `barnabas topics --list` shows what there is")
    pipeline = name or f"load-{topic}"
    decoder = choose_decoder(decode, schema, framing) if isinstance(decode, str) else decode
    settings = LoadSettings(
        topic=topic,
        pipeline=pipeline,
        group=group or pipeline,
        client={**reader_properties(client or {}), "bootstrap.servers": bootstrap_servers},
        decoder=MarkedTombstones(decoder) if mark_tombstones else decoder,
        starting=_starting(starting_offsets),
        most=max_offsets_per_commit,
        fail_on_data_loss=fail_on_data_loss,
    )
    table_of = partial(open_table, catalog=catalog, options=options)
    with ExitStack() as stack:
        names = NAME_SECONDS if every is None else math.inf
        view = stack.enter_context(ClusterView(settings.client, name_patience=names))
        view.topic_ids([topic])
        table = stack.enter_context(table_of(to, format, partition_by=partition_by))
        dead = stack.enter_context(table_of(dead_letters_location(to), table.format))
        job = LoadJob(settings, view, table, dead, on_progress or (lambda _: None), on_step or (lambda _: None))
        job.begin()
        sessions = Sessions(spark, pipeline, master or MASTER, spark_config or {}, verbose=verbose)

        def run() -> LoadReport:
            with sessions:
                return job.run(sessions.get, every)

        return run_beside(run, job.stopping, sessions.drop_tasks)


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadSettings:
    """What a load was asked to do; see `load`."""

    topic: str
    pipeline: str
    group: str
    client: Mapping[str, object]
    decoder: Decoder
    starting: Position
    most: int
    """Offsets in a commit."""
    fail_on_data_loss: bool


class Standing(NamedTuple):
    """Where a load stands before a round."""

    table: TablePosition | None
    start: Mapping[TopicPartition, int]
    """Where reading begins."""
    end: Mapping[TopicPartition, int]

    @property
    def known(self) -> Mapping[TopicPartition, int]:
        """What the table has."""
        return {} if self.table is None else self.table.offsets

    @property
    def version(self) -> int:
        """The number of the table's last commit."""
        return 0 if self.table is None else self.table.version


class LoadJob:
    """One load. Its tables are open, and are its own if the format can hold them."""

    def __init__(
        self,
        settings: LoadSettings,
        view: ClusterView,
        table: Table,
        dead: Table,
        on_progress: Callable[[Progress], None],
        on_step: Callable[[str], None] = lambda _: None,
    ) -> None:
        self.stopping = Stopping()
        self._settings = settings
        self._pipeline = settings.pipeline
        self._decoder = settings.decoder
        self._view = view
        self._table = table
        self._dead = dead
        self._on_progress = on_progress
        self._on_step = on_step
        self._topic_ids: dict[str, str] = {}
        self._shown: dict[TopicPartition, int] = {}
        """What the group was told."""
        self._next_showing = 0.0
        self._records = self._size = self._passed = self._dead_letters = self._commits = 0
        self._began = time.monotonic()

    def begin(self) -> None:
        """Check all that can be checked before Spark starts."""
        if not isinstance(getattr(self._decoder, "kind", None), str):
            raise InvalidOption(
                f"{type(self._decoder).__name__} has no `kind`, the name by which a table keeps to its decoder: add it."
            )
        stands = self._look()
        if stands.table is not None:
            columns = self._without_date(self._table.schema() or METADATA)
            check_decoder(stands.table.decoder, columns, self._decoder, self._table.location)
        self._table.claim()
        if not self._decoder.evolves:
            self._table.destination().check_partition_columns(self._columns(self._decoder.schema))
            self._table.evolve(self._columns(self._decoder.schema))
        if stands.table is None and moves(self._settings.starting):
            self._pin(stands.start)

    def _pin(self, start: Mapping[TopicPartition, int]) -> None:
        """Make the table, without rows: asked for again the start would be a later one, and nothing ever be loaded."""
        ranges = [OffsetRange(*place, offset, offset) for place, offset in sorted(start.items())]
        schema = self._columns(self._decoder.schema)
        try:
            self._table.commit(self._pipeline, ranges, self._topic_ids, [], schema, decoder=self._decoder.kind, after=0)
        except SchemaConflict as error:
            raise InvalidOption(
                f"a load that begins at the end has its table before its first record, and {error}. Give a schema, or "
                "offsets to begin at."
            ) from error

    def run(self, session: Callable[[], SparkSession], every: float | None) -> LoadReport:
        """Load until the topic's end as it is now or, with `every`, for as long as the process runs.

        The session is asked for when there is something to load: to find that there is nothing takes no Spark.
        """
        self._began = time.monotonic()
        upto = None if every is not None else self._ends()
        while True:
            began = time.monotonic()
            while self._round(session, upto):
                pass
            if every is None:
                break
            self.stopping.pause(max(0.0, began + every - time.monotonic()))
        seconds = time.monotonic() - self._began
        return LoadReport(self._records, self._dead_letters, self._size, self._commits, seconds)

    def _round(self, session: Callable[[], SparkSession], upto: Mapping[TopicPartition, int] | None) -> bool:
        """Load and commit once; whether there was anything. Raises Stopped."""
        self.stopping.check()
        stands = self._look()
        self._deliver()
        known, start, end = stands.known, stands.start, stands.end
        if upto is not None:
            end = {place: min(offset, upto.get(place, start[place])) for place, offset in end.items()}
        self._show_in_group(known)
        if not between(start, end):
            return False
        if not self._commits:
            self._on_step("starting Spark")
        with self.stopping.abandonable():
            spark = session()
        self.stopping.check()
        if not self._commits:
            self._began = time.monotonic()
            self._on_step(f"waiting for Spark to read the first records of {self._settings.topic}")
        planned = plan_round(start, end, known, spark.sparkContext.defaultParallelism, self._settings.most)
        lag = sum(max(0, end[place] - start[place]) for place in end)
        with self._ticking(spark, lag) as reports:
            results = self._run_tasks(spark, planned.pieces, self._decoder_for(self._table.schema()), reports)
            schema = self._columns(self._decoder.schema)
            if self._decoder.evolves:
                results, schema = self._agreed(spark, results, reports)
        self._check_topic()
        with self.stopping.uninterrupted():
            self._commit(planned, results, schema, after=stands.version)
        self._show_in_group({each.place: each.end for each in planned.ranges})
        return True

    def _look(self) -> Standing:
        """What the table has, where reading begins, and where it ends. Raises TopicReplaced, DataLost and others."""
        self._topic_ids = self._view.topic_ids([self._settings.topic])
        partitions = self._view.partitions(Selection(topics=(self._settings.topic,)))
        letters = self._dead.position(
            self._pipeline
        )  # before the table's, or those of another job could be ahead of it
        self._check_table()
        position = self._table.position(self._pipeline)
        first, last = self._view.earliest(partitions), self._view.latest(partitions)
        if position is None:
            check_letters(None, letters, self._topic_ids, self._dead.location)
            return Standing(None, offsets_at(self._settings.starting, partitions, self._view), last)
        check_topics(position, self._topic_ids, self._table.location)
        check_position(position.offsets, first, last, fail_on_data_loss=self._settings.fail_on_data_loss)
        check_letters(position, letters, self._topic_ids, self._dead.location)
        return Standing(position, {**first, **position.offsets}, last)

    def _check_table(self) -> None:
        """Raise ForeignTable if the table is of another topic: said first, since it is then of another pipeline too."""
        note = self._table.last_note()
        if note is not None and note.topic_ids and set(note.topic_ids) != {self._settings.topic}:
            raise ForeignTable(
                f"{self._table.location} holds the topic {', '.join(note.topic_ids)}, not {self._settings.topic}: "
                "load into another table."
            )

    def _ends(self) -> dict[TopicPartition, int]:
        return self._view.latest(self._view.partitions(Selection(topics=(self._settings.topic,))))

    def _decoder_for(self, table: pa.Schema | None) -> Decoder:
        known = METADATA if table is None else self._without_date(table)
        return self._decoder.bound(known, (DATE,) if DATE in self._table.partition_by else ())

    def _without_date(self, table: pa.Schema) -> pa.Schema:
        """The table's columns that come from records, not from their time."""
        return without(table, (DATE,)) if DATE in self._table.partition_by else table

    def _columns(self, rows: pa.Schema) -> pa.Schema:
        """The table's columns for rows of this schema."""
        return table_columns(rows, self._table.partition_by)

    def _run_tasks(
        self, spark: SparkSession, pieces: Sequence[Piece], decoder: Decoder, reports: Reports
    ) -> list[Done]:
        work = Work(
            self._settings.client,
            decoder,
            self._table.destination(),
            self._dead.destination(),
            self._settings.fail_on_data_loss,
        )
        context = spark.sparkContext
        shared = context.broadcast(work)

        line, finished, round = reports.line, reports.finished, reports.round

        def task(piece: Piece) -> Done:
            with Reporter(piece, line) as reporter:
                done = run_task(piece, shared.value, reporter.report)
            counted = Counted(done.records, done.size, sum(each.size for each in piece))
            finished.add({(round, key(piece)): counted})
            return done

        try:
            results = context.parallelize(pieces, len(pieces)).map(task).collect()
        finally:
            shared.destroy()  # with its file, in which the client's properties are
        for done in results:
            if done.error is not None:
                raise PipelineError(done.error)
        return results

    def _agreed(self, spark: SparkSession, results: list[Done], reports: Reports) -> tuple[list[Done], pa.Schema]:
        """Results whose rows have one schema, and that schema as columns of the table."""
        known = self._table.schema()
        base = METADATA if known is None else self._without_date(known)

        def again(pieces: Sequence[Piece], agreed: pa.Schema) -> list[Done]:
            self._check_place(agreed)
            return self._run_tasks(spark, pieces, self._decoder_for(agreed), reports)

        results, schema = agree(base, results, again)
        self._check_place(schema)
        return results, self._columns(schema)

    def _check_place(self, agreed: pa.Schema) -> None:
        """Raise SchemaConflict unless records have shown what the table is partitioned by."""
        try:
            self._table.destination().check_partition_columns(self._columns(agreed))
        except SchemaConflict as error:
            raise SchemaConflict(f"the records that are there do not make a table: {error}. Give a schema.") from error

    def _commit(self, planned: Round, results: Sequence[Done], schema: pa.Schema, *, after: int) -> None:
        self._table.evolve(schema)
        files = [file for done in results for file in done.files]
        dead_files = [file for done in results for file in done.dead_files]
        outcome = self._table.commit(
            self._pipeline,
            planned.ranges,
            self._topic_ids,
            files,
            schema,
            outbox=promise(self._dead, self._pipeline, planned.ranges, dead_files),
            decoder=self._decoder.kind,
            after=after,
        )
        if outcome is Outcome.ALREADY:
            raise Fenced.by_twin(self._table.location, self._pipeline)
        self._deliver()
        self._commits += 1
        self._records += sum(done.records for done in results)
        self._size += sum(done.size for done in results)
        self._dead_letters += sum(file.rows for file in dead_files)
        self._passed += sum(each.size for each in planned.ranges)

    def _check_topic(self) -> None:
        """Raise TopicReplaced if what was read may be of another topic than the one that the round began with."""
        now = self._view.topic_ids([self._settings.topic])
        if now != self._topic_ids:
            raise TopicReplaced.meanwhile(self._settings.topic, self._table.location)

    def _deliver(self) -> None:
        """Give the dead-letter table what the last commit promised it, unless it has it."""
        deliver(self._table.outbox(self._pipeline), self._dead, self._pipeline, self._topic_ids)

    def _show_in_group(self, offsets: Mapping[TopicPartition, int]) -> None:
        new = {place: offset for place, offset in offsets.items() if self._shown.get(place) != offset}
        if not new or time.monotonic() < self._next_showing:
            return
        try:
            with self.stopping.abandonable():
                self._view.commit(self._settings.group, new, patience=GROUP_SECONDS)
        except BarnabasError as error:
            log.warning("the group %s does not show the progress: %s", self._settings.group, error)
            self._next_showing = time.monotonic() + GROUP_SECONDS
        else:
            self._shown |= new

    @contextmanager
    def _ticking(self, spark: SparkSession, lag: int) -> Iterator[Reports]:
        """Tell of progress while tasks run; gives what they report to."""
        over = threading.Event()

        def tick() -> None:
            while not over.wait(TICK_SECONDS):
                self._tell(reports.total(), lag)

        with Reports(spark.sparkContext) as reports:
            ticker = threading.Thread(target=tick, daemon=True)
            ticker.start()
            try:
                yield reports
            finally:
                over.set()
                ticker.join()
            self._tell(reports.total(), lag)

    def _tell(self, counted: Counted, lag: int) -> None:
        self._on_progress(
            Progress(
                self._records + counted.records,
                self._size + counted.size,
                self._passed + counted.passed,
                max(0, lag - counted.passed),
                time.monotonic() - self._began,
            )
        )


class Sessions:
    """The session of a load: the given one, or one that is made when it is asked for and ends with the load."""

    def __init__(
        self,
        given: SparkSession | None,
        pipeline: str,
        master: str,
        config: Mapping[str, object],
        *,
        verbose: bool,
    ) -> None:
        self._spark = given
        self._is_given = given is not None
        alone = ALONE if master.startswith("local") else {}
        self._make = partial(_session, pipeline, master, {**SPARK, **alone, **config}, verbose)

    def __enter__(self) -> Sessions:
        return self

    def __exit__(self, *_: object) -> None:
        if self._spark is not None and not self._is_given:
            self._spark.stop()

    def get(self) -> SparkSession:
        """The session."""
        if self._spark is None:
            self._spark = self._make()
        return self._spark

    def drop_tasks(self) -> None:
        """Let tasks that run now come to nothing."""
        if self._spark is not None:
            self._spark.sparkContext.cancelAllJobs()


def _session(pipeline: str, master: str, config: Mapping[str, object], verbose: bool) -> SparkSession:
    from barnabas.pipelines.session import spark_session

    return spark_session(pipeline, master=master, config=config, verbose=verbose)


def _starting(text: str) -> Position:
    if text in ("earliest", "latest"):
        return Edge(text)
    try:
        return AtOffsets(from_text(text))
    except ValueError as error:
        raise InvalidOption(
            f'starting offsets are earliest, latest, or JSON such as {{"orders":{{"0":5}}}}: {error}'
        ) from error
