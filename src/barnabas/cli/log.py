"""`barnabas log`: look into log files, and check them. Both read files only; no broker is asked."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from barnabas.cli.help import Command, Group, option
from barnabas.cli.output import json_option, print_json, remark


@click.group(
    cls=Group,
    examples=[
        ("is everything sound?", "barnabas log check ./data"),
        ("what is in a segment?", "barnabas log dump ./data/orders-0/00000000000000000000.log"),
    ],
)
def command() -> None:
    """Look into log files, and check them."""


@command.command(
    cls=Command,
    short_help="Show what log files hold.",
    examples=[
        ("the batches of a segment", "barnabas log dump ./data/orders-0/00000000000000000000.log"),
        ("keys and values as well", "barnabas log dump --print-data-log ./data/orders-0/*.log"),
        ("everything that a partition has", "barnabas log dump ./data/orders-0/*"),
        ("do the indexes agree with the log?", "barnabas log dump --verify-index-only ./data/orders-0/*index"),
    ],
)
@click.argument("files", metavar="FILE...", nargs=-1, type=click.Path(exists=True, dir_okay=False, path_type=Path))
@option("--files", "listed", metavar="FILE,FILE,...", help="Files by commas, as Kafka's tool has it.", section="What")
@option("--deep-iteration", is_flag=True, help="Show the records of each batch.", section="What")
@option("--print-data-log", is_flag=True, help="Show keys and values; includes --deep-iteration.", section="What")
@option("--skip-record-metadata", is_flag=True, help="Show keys and values alone.", section="What")
@option("--max-bytes", type=click.IntRange(min=0), metavar="N", help="Stop after N bytes of a log.", section="What")
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
    or that deserves a look. The exit code is 1 if there is an error.
    """
    from barnabas.cli import service
    from barnabas.storage.check import check as check_directory

    reports = []
    for directory in directories:
        if service.is_running(directory):
            remark(f"A broker is running on {directory}: what it is writing right now may look unfinished.")
        report = check_directory(directory)
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
