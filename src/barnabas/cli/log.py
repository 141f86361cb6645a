"""`barnabas log`: look into log files, check and mend them, see what was cleaned or set aside. No broker is asked.

All but `mend` and `strays --remove` only read.
"""

from __future__ import annotations

import sys
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from barnabas.cli.help import Command, Group, option
from barnabas.cli.numbers import INT32
from barnabas.cli.output import Style, choose_style, json_option, print_json, print_table, remark
from barnabas.cli.progress import progress

if TYPE_CHECKING:
    from barnabas.storage.cleaner.report import Overview

CLEANER_COLUMNS: Final = ("PARTITION", "FIRST-DIRTY", "DIRTY", "CLEANED-AT", "SECONDS", "RECORDS", "BYTES", "REMARK")


@click.group(
    cls=Group,
    examples=[
        ("is everything sound?", "barnabas log check ./data"),
        ("what is in a segment?", "barnabas log dump ./data/orders-0/00000000000000000000.log"),
        ("what did compaction do?", "barnabas log cleaner ./data"),
        ("what is set aside?", "barnabas log strays ./data"),
        ("make right what an earlier version wrote", "barnabas log mend ./data"),
    ],
)
def command() -> None:
    """Look into log files, check and mend them, and see what was cleaned or set aside."""


@command.command(
    cls=Command,
    short_help="Show what log files hold.",
    examples=[
        ("the batches of a segment", "barnabas log dump ./data/orders-0/00000000000000000000.log"),
        ("keys and values as well", "barnabas log dump --print-data-log ./data/orders-0/*.log"),
        ("what groups have committed", "barnabas log dump --offsets-decoder ./data/__consumer_offsets-*/*.log"),
        ("everything that a partition has", "barnabas log dump ./data/orders-0/*"),
        ("do the indexes agree with the log?", "barnabas log dump --verify-index-only ./data/orders-0/*index"),
    ],
)
@click.argument("files", metavar="FILE...", nargs=-1, type=click.Path(exists=True, dir_okay=False, path_type=Path))
@option("--files", "listed", metavar="FILE,FILE,...", help="Files by commas, as Kafka's tool has it.", section="What")
@option("--deep-iteration", is_flag=True, help="Show the records of each batch.", section="What")
@option("--print-data-log", is_flag=True, help="Show keys and values; includes --deep-iteration.", section="What")
@option("--skip-record-metadata", is_flag=True, help="Show keys and values alone.", section="What")
@option("--offsets-decoder", is_flag=True, help="Show what records of __consumer_offsets say.", section="What")
@option("--transaction-log-decoder", is_flag=True, help="Show what those of __transaction_state say.", section="What")
@option("--max-bytes", type=INT32, metavar="N", help="Stop after N bytes of a log.", section="What")
@option("--verify-index-only", is_flag=True, help="Show only where an index disagrees with its log.", section="What")
@option("--index-sanity-check", is_flag=True, help="Show only whether an index is usable as it is.", section="What")
def dump(files: tuple[Path, ...], listed: str | None, **options: Any) -> None:
    """Show what log files hold: segments, indexes, snapshots, checkpoints.

    The flags and the lines are those of kafka-dump-log.
    """
    from barnabas.storage.dump import DumpOptions
    from barnabas.storage.dump import dump as dump_file

    paths = [*files, *(Path(name.strip()) for name in (listed or "").split(",") if name.strip())]
    if not paths:
        raise click.UsageError("Name at least one FILE.")
    chosen = DumpOptions(**options)
    for path in paths:  # not by click.echo, which flushes every line
        sys.stdout.writelines(f"{line}\n" for line in dump_file(path, chosen))


@command.command(
    cls=Command,
    short_help="Check data directories.",
    examples=[
        ("a data directory, with all its partitions", "barnabas log check ./data"),
        ("one partition", "barnabas log check ./data/orders-0"),
        ("in a script", "barnabas log check --json ./data | jq .errors"),
    ],
)
@click.argument(
    "directories",
    metavar="DIR...",
    nargs=-1,
    required=True,
    type=click.Path(exists=True, file_okay=False, path_type=Path),
)
@json_option
@click.pass_context
def check(ctx: click.Context, directories: tuple[Path, ...], as_json: bool) -> None:
    """Check data directories, or single partitions: checksums, offsets, indexes, checkpoints.

    Nothing is changed. An error is a promise that the files break; a warning is something that the next start repairs
    or that deserves a look; a note is something that is right and good to know. The exit code is 1 if there is an
    error.
    """
    from barnabas.cli import service
    from barnabas.storage.check import check as check_directory

    reports = []
    for directory in directories:
        if in_use := service.is_running(directory):
            remark(f"A broker is running on {directory}: what it is writing right now may look unfinished.")
        size = sum(path.stat().st_size for path in directory.rglob("*.log"))
        with progress(f"Checking {directory}", size, of_bytes=True) as watched:
            report = check_directory(directory, watched, in_use=in_use)
        reports.append(report)
        if not as_json:
            for finding in report.findings:
                click.echo(str(finding))
            click.echo(f"{directory}: {report.summary()}")
    if as_json:
        print_json(
            {
                "errors": sum(len(report.errors) for report in reports),
                "partitions": sum(report.partitions for report in reports),
                "segments": sum(report.segments for report in reports),
                "batches": sum(report.batches for report in reports),
                "records": sum(report.records for report in reports),
                "bytes": sum(report.size for report in reports),
                "findings": [
                    {
                        "severity": finding.severity.value,
                        "path": str(finding.path),
                        "position": finding.position,
                        "what": finding.what,
                    }
                    for report in reports
                    for finding in report.findings
                ],
            }
        )
    if not all(report.ok for report in reports):
        ctx.exit(1)


@command.command(
    cls=Command,
    short_help="Mend data directories of a stopped broker.",
    examples=[
        ("before the data goes to Apache Kafka", "barnabas log mend ./data"),
        ("go on without records that are lost", "barnabas log mend --accept-loss ./data"),
    ],
)
@click.argument(
    "directories",
    metavar="DIR...",
    nargs=-1,
    required=True,
    type=click.Path(exists=True, file_okay=False, path_type=Path),
)
@option(
    "--accept-loss",
    is_flag=True,
    help="Let logs that lack records which were on disk go on behind them.",
    section="What",
)
@click.pass_context
def mend(ctx: click.Context, directories: tuple[Path, ...], accept_loss: bool) -> None:
    """Mend the data directories of a broker that is stopped, and say what was done.

    Offsets that were committed in transactions get the sequence number that Apache Kafka gives them; earlier versions
    of Barnabas wrote none, and Kafka's cleaner stops at such a partition.

    A log that lacks records which were on disk is not served. With --accept-loss it is: what is gone stays gone, its
    offsets are not given out again, and the log goes on behind them. The exit code is 1 if a log was left as it is.
    """
    from barnabas.storage.mending import mend as mend_directory

    left = False
    for directory in directories:
        count = 0
        for mended in mend_directory(directory, accept_loss=accept_loss):
            count += 1
            left = left or not mended.done
            click.echo(f"{directory}: {mended.partition}: {mended.what}")
        if not count:
            remark(f"{directory}: there is nothing to mend.")
    if left:
        ctx.exit(1)


@command.command(
    cls=Command,
    short_help="Show what compaction did.",
    examples=[
        ("every compacted partition", "barnabas log cleaner ./data"),
        ("what cannot be cleaned, in a script", "barnabas log cleaner --json ./data | jq '.[] | select(.uncleanable)'"),
    ],
)
@click.argument("directory", metavar="DIR", type=click.Path(exists=True, file_okay=False, path_type=Path))
@json_option
def cleaner(directory: Path, as_json: bool) -> None:
    """Show what compaction did in a data directory, and what is left to it.

    Of each partition: where its dirty part begins, how much of its finished segments is dirty, when it was last cleaned
    and what remained then, and, if it cannot be cleaned, why.
    """
    from barnabas.storage.cleaner.report import overview

    found = overview(directory)
    match choose_style(as_json=as_json):
        case Style.JSON:
            print_json([_cleaner_fields(each) for each in found])
        case Style.TABLE:
            print_table(CLEANER_COLUMNS, map(_cleaner_row, found))
        case Style.PLAIN:
            for row in (CLEANER_COLUMNS, *map(_cleaner_row, found)):
                click.echo("\t".join(map(str, row)))
    if not found:
        remark(f"No partition of {directory} was cleaned yet.")


@command.command(
    cls=Command,
    short_help="Show or remove logs that were set aside.",
    examples=[
        ("what is set aside?", "barnabas log strays ./data"),
        ("remove all of it, after a question", "barnabas log strays ./data --remove"),
        ("remove what is left of one topic, without one", "barnabas log strays ./data --topic orders --remove --yes"),
    ],
)
@click.argument(
    "directories",
    metavar="DIR...",
    nargs=-1,
    required=True,
    type=click.Path(exists=True, file_okay=False, path_type=Path),
)
@option("--topic", metavar="NAME", help="Only logs of topics of this name.", section="What")
@option("--remove", is_flag=True, help="Remove them for good.", section="What")
@option("--yes", is_flag=True, help="Do not ask before.", section="What")
@json_option
def strays(directories: tuple[Path, ...], topic: str | None, remove: bool, yes: bool, as_json: bool) -> None:
    """Show logs that were set aside in data directories, and remove them.

    A broker sets a log aside (as TOPIC-PARTITION.ID-stray) when the cluster gives it no such replica. It removes it by
    itself when the metadata tree records that the topic was deleted, and takes it back, with its data, when it is given
    the replica again. What is neither stays until it is removed here. The broker may be running or not.
    """
    from barnabas.storage.strays import list_strays, remove_stray

    if yes and not remove:
        raise click.UsageError("--yes goes with --remove.")
    found = [each for directory in directories for each in list_strays(directory) if topic in (None, each.topic)]
    rows = [(str(each.path), each.topic, each.partition, each.topic_id_text, each.size) for each in found]
    columns = ("PATH", "TOPIC", "PARTITION", "TOPIC-ID", "BYTES")
    match choose_style(as_json=as_json):
        case Style.JSON:
            names = ("path", "topic", "partition", "topicId", "bytes")
            print_json([dict(zip(names, row, strict=True)) for row in rows])
        case Style.TABLE if rows:
            print_table(columns, rows)
        case Style.PLAIN if rows:
            for row in (columns, *rows):
                click.echo("\t".join(map(str, row)))
    if not found:
        remark("Nothing is set aside.")
    elif remove:
        size = sum(each.size for each in found)
        if not yes:
            click.confirm(f"Remove these {len(found)} logs with {size} bytes for good?", abort=True, err=True)
        removed = [each for each in found if remove_stray(each.path)]
        remark(f"Removed {len(removed)} logs with {sum(each.size for each in removed)} bytes.")
        if len(removed) < len(found):
            remark(
                f"{len(found) - len(removed)} others are not there any more: a broker took them back or removed them."
            )


def _cleaner_fields(each: Overview) -> dict[str, Any]:
    fields = asdict(each)
    return {**fields, **fields.pop("report"), "dirty_ratio": round(each.dirty_ratio, 3)}


def _cleaner_row(each: Overview) -> tuple[object, ...]:
    last = each.report.last
    remark = each.report.uncleanable or ""
    dirty = f"{each.dirty_ratio:.0%}"
    if last is None:
        return each.partition, each.first_dirty, dirty, "-", "-", "-", "-", remark
    return (
        each.partition,
        each.first_dirty,
        dirty,
        datetime.fromtimestamp(last.time_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%SZ"),
        last.seconds,
        f"{last.records_in}→{last.records_out}",
        f"{last.bytes_in}→{last.bytes_out}",
        remark,
    )
