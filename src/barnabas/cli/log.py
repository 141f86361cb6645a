"""`barnabas log`: look into log files, and check them. Both read files only; no broker is asked."""

from __future__ import annotations

from pathlib import Path

import click

from barnabas.cli.help import Command, Group
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
