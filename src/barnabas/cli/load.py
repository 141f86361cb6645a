"""`barnabas load`: a topic into a table, once or for ever, exactly once either way."""

from __future__ import annotations

import sys
import threading
import time
from dataclasses import asdict
from typing import TYPE_CHECKING, Final

import click

from barnabas.cli.connection import client_properties, connection_options
from barnabas.cli.durations import DURATION
from barnabas.cli.help import Command, option
from barnabas.cli.numbers import POSITIVE64
from barnabas.cli.output import json_option, print_json, remark
from barnabas.cli.spark_failures import ended_by_signals, in_one_line, verbose_option
from barnabas.cli.table_options import pairs, table_options

if TYPE_CHECKING:
    from datetime import timedelta
    from pathlib import Path

    from barnabas.pipelines.loading.progress import LoadReport, Progress

LINE_SECONDS: Final = 10.0
"""How often a line tells of progress where no bar can be drawn."""


@click.command(
    cls=Command,
    examples=[
        ("all records of a topic as Parquet files, as they are", "barnabas load orders --to lake/orders"),
        (
            "JSON as columns of a Delta table, one folder a day",
            "barnabas load orders --to lake/orders --format delta --decode json --partition-by record_date",
        ),
        (
            "Avro, and looking for more every half minute",
            "barnabas load orders --to lake/orders --format iceberg --decode avro --schema order.avsc --every 30s",
        ),
        (
            "on a Spark cluster",
            "barnabas load orders --to s3://lake/orders --format delta --master spark://host:7077",
        ),
    ],
)
@click.argument("topic")
@option(
    "--to", required=True, metavar="PLACE", help="The table: a folder, an address or namespace.table.", section="Table"
)
@table_options
@option(
    "--partition-by",
    metavar="COLUMN,...",
    help="Columns to partition a new table by; record_date is the day of a record.",
    section="Table",
)
@option("--available-now", is_flag=True, help="Load what is there, and end.  [default]", section="When")
@option("--every", type=DURATION, metavar="TIME", help="Go on, and look so often for more: 30s, 5m.", section="When")
@option(
    "--starting-offsets",
    metavar="WHERE",
    default="earliest",
    show_default=True,
    help='Where a new table begins: earliest, latest, or JSON as in {"orders":{"0":5}}.',
    section="When",
)
@option(
    "--allow-data-loss",
    is_flag=True,
    help="Go on when records were removed before they were loaded.",
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
    help="json: a file or a line as in 'id BIGINT, name STRING'; avro: an .avsc file; protobuf: FILE.proto:MESSAGE or "
    "FILE.desc:MESSAGE. Without one, JSON's is inferred and grows.",
    section="Values",
)
@option(
    "--framing",
    metavar="KIND",
    default="auto",
    show_default=True,
    help="Whether values begin with a schema registry's id: auto, confluent or none.",
    section="Values",
)
@option(
    "--mark-tombstones",
    is_flag=True,
    help="Add a column _tombstone, true where a record has no value.",
    section="Values",
)
@option("--name", metavar="NAME", help="The pipeline, which owns the table.  [default: load-TOPIC]", section="Job")
@option("--group", metavar="GROUP", help="The group that shows the progress.  [default: as --name]", section="Job")
@option("--master", metavar="URL", help="Spark's master.  [default: this machine, all cores]", section="Job")
@option("--conf", multiple=True, metavar="NAME=VALUE", help="A setting of Spark.", section="Job")
@option(
    "--max-offsets-per-commit",
    type=POSITIVE64,
    metavar="N",
    default=4_000_000,
    help="The most that one commit adds.  [default: 4000000]",
    section="Job",
)
@verbose_option
@connection_options
@json_option
def command(
    topic: str,
    to: str,
    kind: str | None,
    catalog: str,
    options: tuple[str, ...],
    partition_by: str | None,
    available_now: bool,
    every: timedelta | None,
    starting_offsets: str,
    allow_data_loss: bool,
    decode: str,
    schema: str | None,
    framing: str,
    mark_tombstones: bool,
    name: str | None,
    group: str | None,
    master: str | None,
    conf: tuple[str, ...],
    max_offsets_per_commit: int,
    verbose: bool,
    bootstrap_server: str,
    command_config: Path | None,
    as_json: bool,
) -> None:
    """Load a topic into a table: never short a record, and none twice, whatever is killed on the way.

    It goes on where the table stands, so starting it again is always right. Records that cannot be decoded go to the
    table PLACE_dead, with the reason. Ctrl-C ends it between two commits.
    """
    if available_now and every is not None:
        raise click.UsageError("Give --available-now or --every.")
    from barnabas.clients.library import load as load_library

    load_library("pyspark", "spark")
    from barnabas.pipelines.loading.job import load

    bar = Bar(topic) if sys.stderr.isatty() else Lines()
    with (
        ended_by_signals("Interrupted between two commits: the same load goes on from there."),
        bar,
        in_one_line("The table is as its last commit left it: start the load again."),
    ):
        report = load(
            topic,
            to,
            format=kind,
            bootstrap_servers=bootstrap_server,
            name=name,
            decode=decode,
            schema=schema,
            framing=framing,
            mark_tombstones=mark_tombstones,
            partition_by=[column.strip() for column in (partition_by or "").split(",") if column.strip()],
            starting_offsets=starting_offsets,
            every=None if every is None else every.total_seconds(),
            group=group,
            max_offsets_per_commit=max_offsets_per_commit,
            fail_on_data_loss=not allow_data_loss,
            master=master,
            spark_config=pairs(conf, "--conf"),
            client=client_properties(command_config),
            catalog=catalog,
            options=pairs(options),
            on_progress=bar.show,
            on_step=bar.wait,
            verbose=verbose,
        )
    show(report, to, as_json=as_json)


def show(report: LoadReport, to: str, *, as_json: bool) -> None:
    """What a load did."""
    if as_json:
        print_json(asdict(report))
        return
    from barnabas.pipelines.tables.opening import dead_letters_location

    dead = f", of which {report.dead:,} are in {dead_letters_location(to)}" if report.dead else ""
    rate = report.records / report.seconds if report.seconds else 0
    click.echo(
        f"Loaded {report.records:,} records ({_bytes(report.size)}) in {report.seconds:.1f} s ({rate:,.0f}/s) in "
        f"{report.commits} {'commit' if report.commits == 1 else 'commits'}{dead}."
    )


class Lines:
    """Progress as a line now and then."""

    def __init__(self) -> None:
        self._last = time.monotonic()
        self._step: str | None = None
        self._over = threading.Event()
        self._reminder = threading.Thread(target=self._remind, daemon=True)

    def __enter__(self) -> Lines:
        self._reminder.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._reminder.join()

    def wait(self, step: str) -> None:
        """Say what is waited for."""
        self._step, self._began = step, time.monotonic()
        remark(f"{step[0].upper()}{step[1:]}.")

    def _remind(self) -> None:
        while not self._over.wait(LINE_SECONDS):
            if (step := self._step) is not None and time.monotonic() - self._began > LINE_SECONDS / 2:
                remark(f"Still {step} ({time.monotonic() - self._began:.0f} s).")

    def show(self, progress: Progress) -> None:
        """Say how far it is, if that was long ago."""
        if progress.records:
            self._step = None
        if self._step is None and time.monotonic() - self._last >= LINE_SECONDS:
            self._last = time.monotonic()
            remark(told(progress))


class Bar:
    """Progress as a bar: rows, bytes, lag and the time that is left."""

    def __init__(self, topic: str) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, TextColumn, TimeRemainingColumn
        from rich.progress import Progress as RichProgress

        self._bar = RichProgress(
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.fields[told]}"),
            TimeRemainingColumn(),
            console=Console(stderr=True),
            transient=True,
        )
        self._task = self._bar.add_task(topic, total=None, told="asking the broker")

    def __enter__(self) -> Bar:
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def wait(self, step: str) -> None:
        """Say what is waited for."""
        self._bar.update(self._task, told=step)

    def show(self, progress: Progress) -> None:
        """Draw it anew, once there is something to show."""
        if progress.records:
            total = progress.done + progress.lag
            self._bar.update(self._task, total=total, completed=progress.done, told=told(progress))


def told(progress: Progress) -> str:
    """Progress in words."""
    left = "" if progress.seconds_left is None else f", about {progress.seconds_left:.0f} s left"
    return f"{progress.records:,} records, {_bytes(progress.size)}, {progress.rate:,.0f}/s, lag {progress.lag:,}{left}"


def _bytes(size: float) -> str:
    for unit in ("B", "KB", "MB", "GB"):
        if size < 1000:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.1f} TB"
