"""The command line of `barnabas load`."""

from __future__ import annotations

import sys
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

import click

from barnabas.cli.common.combinations import at_most_one
from barnabas.cli.common.connection import ConnectionOptions, connection_options
from barnabas.cli.common.help import Command, option
from barnabas.cli.common.options import takes
from barnabas.cli.common.output import json_option, print_json
from barnabas.cli.common.spark_failures import ended_by_signals, in_one_line, verbose_option
from barnabas.cli.common.table_options import TableOptions, table_options
from barnabas.cli.common.values.durations import DURATION
from barnabas.cli.common.values.numbers import POSITIVE32, POSITIVE64
from barnabas.cli.common.values.pairs import parse_pairs
from barnabas.cli.common.values.sizes import counted, size_text
from barnabas.cli.load.progress import Bar, Lines
from barnabas.model.internal_topics import PIPELINE_METRICS

if TYPE_CHECKING:
    from datetime import timedelta

    from barnabas.pipelines.loading.progress import LoadReport


@dataclass(frozen=True, kw_only=True)
class Options(ConnectionOptions, TableOptions):
    """The options of `barnabas load`."""

    topic: str
    to: str
    partition_by: str | None
    keep_snapshots: int | None
    available_now: bool
    every: timedelta | None
    starting_offsets: str
    allow_data_loss: bool
    decode: str
    schema: str | None
    framing: str
    mark_tombstones: bool
    name: str | None
    group: str | None
    metrics: str
    master: str | None
    conf: tuple[str, ...]
    max_offsets_per_commit: int
    verbose: bool
    as_json: bool

    def check(self) -> None:
        """Refuse two answers to when the load ends."""
        at_most_one(self, "available_now", "every")

    @property
    def partition_columns(self) -> list[str]:
        """The columns of --partition-by."""
        return [column.strip() for column in (self.partition_by or "").split(",") if column.strip()]


@click.command(
    cls=Command,
    examples=[
        ("load all records of a topic as Parquet files, with values as bytes", "barnabas load orders --to lake/orders"),
        (
            "load JSON as columns of a Delta table, with one folder for each day",
            "barnabas load orders --to lake/orders --format delta --decode json --partition-by record_date",
        ),
        (
            "load Avro, and look for new records every half minute",
            "barnabas load orders --to lake/orders --format iceberg --decode avro --schema order.avsc --every 30s",
        ),
        (
            "load on a Spark cluster",
            "barnabas load orders --to s3://lake/orders --format delta --master spark://host:7077",
        ),
    ],
)
@click.argument("topic")
@option(
    "--to",
    required=True,
    metavar="PLACE",
    help="The table: a folder, a URL, or NAMESPACE.TABLE of Iceberg.",
    section="Table",
)
@table_options
@option(
    "--partition-by",
    metavar="COLUMN,...",
    help="Columns to partition a new table by; record_date is the day of a record.",
    section="Table",
)
@option(
    "--keep-snapshots",
    type=POSITIVE32,
    metavar="N",
    help="Remove all but the last N snapshots of an Iceberg table with each commit.  [default: keep all]",
    section="Table",
)
@option(
    "--available-now", is_flag=True, help="Load the records that the topic has now, and end.  [default]", section="When"
)
@option(
    "--every",
    type=DURATION,
    metavar="TIME",
    help="Do not end, and load new records at this interval, such as 30s or 5m.",
    section="When",
)
@option(
    "--starting-offsets",
    metavar="WHERE",
    default="earliest",
    show_default=True,
    help='Where a new table starts: earliest, latest, or JSON such as {"orders":{"0":5}}.',
    section="When",
)
@option(
    "--allow-data-loss",
    is_flag=True,
    help="Continue if records were deleted before they were loaded.",
    section="When",
)
@option(
    "--decode",
    metavar="FORMAT",
    default="bytes",
    show_default=True,
    help="How values become columns: json, avro, protobuf, string or bytes.",
    section="Values",
)
@option(
    "--schema",
    metavar="SCHEMA",
    help="For json a file, or columns such as 'id BIGINT, name STRING'; for avro an .avsc file; for protobuf "
    "FILE.proto:MESSAGE or FILE.desc:MESSAGE. Without it, the schema of JSON is inferred, and new fields add columns.",
    section="Values",
)
@option(
    "--framing",
    metavar="KIND",
    default="auto",
    show_default=True,
    help="Whether values begin with the id of a schema registry: auto, confluent or none.",
    section="Values",
)
@option(
    "--mark-tombstones",
    is_flag=True,
    help="Add a column _tombstone, true where a record has no value.",
    section="Values",
)
@option(
    "--name",
    metavar="NAME",
    help="The name of the pipeline, which owns the table.  [default: load-TOPIC]",
    section="Job",
)
@option(
    "--group",
    metavar="GROUP",
    help="The consumer group that shows how far the load is.  [default: that of --name]",
    section="Job",
)
@option(
    "--metrics",
    metavar="TOPIC",
    default=PIPELINE_METRICS,
    show_default=True,
    help="The topic that gets a report of every commit; '' for none.",
    section="Job",
)
@option(
    "--master", metavar="URL", help="The address of Spark's master.  [default: this machine, all cores]", section="Job"
)
@option("--conf", multiple=True, metavar="NAME=VALUE", help="A setting of Spark.", section="Job")
@option(
    "--max-offsets-per-commit",
    type=POSITIVE64,
    metavar="N",
    default=4_000_000,
    help="The most offsets that one commit adds.  [default: 4000000]",
    section="Job",
)
@verbose_option
@connection_options
@json_option
@takes(Options)
def command(options: Options) -> None:
    """Load a topic into a table, every record exactly once, even if a process is killed.

    A load continues where the table ends, so it can always be started again. Records that cannot be decoded go to the
    table PLACE_dead, with the reason. Ctrl-C ends the load between two commits.
    """
    from barnabas.clients.library import load as load_library

    load_library("pyspark", "spark")
    bar = Bar(options.topic) if sys.stderr.isatty() else Lines()
    with (
        ended_by_signals("Interrupted between two commits: the same load goes on from there."),
        bar,
        in_one_line("The table is as its last commit left it: start the load again."),
    ):
        report = run(options, bar)
    show(report, options.to, as_json=options.as_json)


def run(options: Options, bar: Bar | Lines) -> LoadReport:
    """Load, and show how far it is."""
    from barnabas.pipelines.loading.api import load

    return load(
        options.topic,
        options.to,
        format=options.kind,
        bootstrap_servers=options.address,
        name=options.name,
        decode=options.decode,
        schema=options.schema,
        framing=options.framing,
        mark_tombstones=options.mark_tombstones,
        partition_by=options.partition_columns,
        starting_offsets=options.starting_offsets,
        every=None if options.every is None else options.every.total_seconds(),
        group=options.group,
        max_offsets_per_commit=options.max_offsets_per_commit,
        fail_on_data_loss=not options.allow_data_loss,
        master=options.master,
        spark_config=parse_pairs(options.conf, "--conf") or None,
        client=options.client_properties(),
        catalog=options.catalog,
        options=options.library_options,
        keep_snapshots=options.keep_snapshots,
        metrics=options.metrics,
        on_progress=bar.show,
        on_step=bar.wait,
        verbose=options.verbose,
    )


def show(report: LoadReport, to: str, *, as_json: bool) -> None:
    """What a load did."""
    if as_json:
        print_json(asdict(report))
        return
    from barnabas.pipelines.tables.opening import dead_letters_location

    are = "is" if report.dead == 1 else "are"
    dead = f", of which {report.dead:,} {are} in {dead_letters_location(to)}" if report.dead else ""
    rate = report.records / report.seconds if report.seconds else 0
    size = size_text(report.size, 1000)
    click.echo(
        f"Loaded {counted(report.records, 'record')} ({size}) in {report.seconds:.1f} s ({rate:,.0f}/s) in "
        f"{counted(report.commits, 'commit')}{dead}."
    )
