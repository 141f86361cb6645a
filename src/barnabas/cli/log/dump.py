"""`barnabas log dump`: kafka-dump-log."""

from __future__ import annotations

import sys
from dataclasses import dataclass, fields
from pathlib import Path

import click

from barnabas.cli.common import options as common
from barnabas.cli.common.help import Command, option
from barnabas.cli.common.options import takes
from barnabas.cli.common.values.files import FILE
from barnabas.cli.common.values.numbers import INT32


@dataclass(frozen=True, kw_only=True)
class Options(common.Options):
    """The options of `barnabas log dump`."""

    files: tuple[Path, ...]
    listed: str | None
    deep_iteration: bool
    print_data_log: bool
    skip_record_metadata: bool
    offsets_decoder: bool
    transaction_log_decoder: bool
    share_group_state_decoder: bool
    max_bytes: int | None
    verify_index_only: bool
    index_sanity_check: bool

    @property
    def paths(self) -> list[Path]:
        """FILE... and those of --files."""
        return [*self.files, *(Path(name.strip()) for name in (self.listed or "").split(",") if name.strip())]

    def check(self) -> None:
        """Refuse to show nothing."""
        if not self.paths:
            raise click.UsageError("Name at least one FILE.")


@click.command(
    cls=Command,
    short_help="Show what log files hold.",
    examples=[
        ("the batches of a segment", "barnabas log dump ./data/orders-0/00000000000000000000.log"),
        ("keys and values as well", "barnabas log dump --print-data-log ./data/orders-0/*.log"),
        ("what groups have committed", "barnabas log dump --offsets-decoder ./data/__consumer_offsets-*/*.log"),
        ("everything that a partition has", "barnabas log dump ./data/orders-0/*"),
        ("check that indexes agree with the log", "barnabas log dump --verify-index-only ./data/orders-0/*index"),
    ],
)
@click.argument("files", metavar="FILE...", nargs=-1, type=FILE)
@option("--files", "listed", metavar="FILE,FILE,...", help="Files, separated by commas, as in Kafka.", section="What")
@option("--deep-iteration", is_flag=True, help="Show the records of each batch.", section="What")
@option("--print-data-log", is_flag=True, help="Show keys and values; includes --deep-iteration.", section="What")
@option("--skip-record-metadata", is_flag=True, help="Show only keys and values.", section="What")
@option("--offsets-decoder", is_flag=True, help="Decode records of __consumer_offsets.", section="What")
@option("--transaction-log-decoder", is_flag=True, help="Decode records of __transaction_state.", section="What")
@option("--share-group-state-decoder", is_flag=True, help="Decode records of __share_group_state.", section="What")
@option("--max-bytes", type=INT32, metavar="N", help="Stop after N bytes of a log.", section="What")
@option("--verify-index-only", is_flag=True, help="Show only where an index disagrees with its log.", section="What")
@option("--index-sanity-check", is_flag=True, help="Show only whether an index is usable.", section="What")
@takes(Options)
def dump(options: Options) -> None:
    """Show what log files hold: segments, indexes, snapshots, checkpoints.

    The flags and the lines are those of kafka-dump-log.
    """
    from barnabas.storage import dump

    chosen = dump.DumpOptions(**{field.name: getattr(options, field.name) for field in fields(dump.DumpOptions)})
    for path in options.paths:  # not by click.echo, which flushes every line
        sys.stdout.writelines(f"{line}\n" for line in dump.dump(path, chosen))
