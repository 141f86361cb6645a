"""`barnabas log check`: is a data directory sound?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from barnabas.cli.common.help import Command
from barnabas.cli.common.options import takes
from barnabas.cli.common.output import json_option, print_json, remark
from barnabas.cli.common.progress import progress
from barnabas.cli.common.remedies import with_remedy
from barnabas.cli.log.folders import FolderOptions, folders_argument

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from barnabas.storage.check.report import Report


@dataclass(frozen=True, kw_only=True)
class Options(FolderOptions):
    """The options of `barnabas log check`."""

    as_json: bool


@click.command(
    cls=Command,
    short_help="Check data directories.",
    examples=[
        ("a data directory, with all its partitions", "barnabas log check ./data"),
        ("one partition", "barnabas log check ./data/orders-0"),
        ("in a script", "barnabas log check --json ./data | jq .errors"),
    ],
)
@folders_argument
@json_option
@takes(Options)
def check(options: Options) -> None:
    """Check data directories, or single partitions: checksums, offsets, indexes, checkpoints.

    Nothing is changed. An error is damage. A warning is something that the next start repairs, or that should be looked
    at. A note is for information. The exit code is 1 if there is an error.
    """
    reports = []
    for directory in options.directories:
        report = check_folder(directory)
        reports.append(report)
        if not options.as_json:
            for finding in report.findings:
                click.echo(with_remedy(str(finding), finding.remedy))
            click.echo(f"{directory}: {report.summary()}")
    if options.as_json:
        print_json(_document(reports))
    if not all(report.ok for report in reports):
        raise click.exceptions.Exit(1)


def check_folder(directory: Path) -> Report:
    """What is wrong with one directory; a remark says so where a broker is writing to it."""
    from barnabas.cli.start import service
    from barnabas.storage.check import check

    if in_use := service.is_running(directory):
        remark(f"A broker is running on {directory}: what it is writing right now may look unfinished.")
    size = sum(path.stat().st_size for path in directory.rglob("*.log"))
    with progress(f"Checking {directory}", size, of_bytes=True) as watched:
        return check(directory, watched, in_use=in_use)


def _document(reports: Sequence[Report]) -> dict[str, object]:
    return {
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
                "what": with_remedy(finding.what, finding.remedy),
            }
            for report in reports
            for finding in report.findings
        ],
    }
