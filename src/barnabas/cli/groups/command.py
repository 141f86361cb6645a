"""The command line of `barnabas groups`: its options, which of them go together, and where each action lives.

What differs from kafka-consumer-groups, on purpose: --bootstrap-server has a default, errors go to standard error and
make the exit code 1, one missing group does not hide the others, and a terminal gets tables.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from barnabas.cli.connection import connection_options, timeout_option
from barnabas.cli.groups.import_zookeeper import import_zookeeper
from barnabas.cli.help import Group, option
from barnabas.cli.numbers import SIGNED64
from barnabas.cli.output import json_option

if TYPE_CHECKING:
    from barnabas.clients.groups import Groups

ACTIONS = ("list", "describe", "reset_offsets", "delete", "delete_offsets", "validate_regex")
SCENARIOS = (
    "to_earliest",
    "to_latest",
    "to_current",
    "to_offset",
    "shift_by",
    "to_datetime",
    "by_duration",
    "from_file",
)
REPORTS = ("offsets", "members", "state")
ALLOWED_WITH = {
    "group": ("describe", "reset_offsets", "delete", "delete_offsets"),
    "all_groups": ("describe", "reset_offsets", "delete"),
    "topic": ("reset_offsets", "delete_offsets"),
    "all_topics": ("reset_offsets",),
    "offsets": ("describe",),
    "members": ("describe",),
    "verbose": ("describe",),
    "state": ("list", "describe"),
    "type": ("list",),
    **dict.fromkeys((*SCENARIOS, "dry_run", "execute", "export"), ("reset_offsets",)),
}
"""Which actions an option goes with; the others take all of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The command line, one field per option. `state` and `type` are "" when given without a value."""

    bootstrap_server: str
    command_config: Path | None
    timeout: int
    list: bool
    describe: bool
    reset_offsets: bool
    delete: bool
    delete_offsets: bool
    validate_regex: str | None
    group: tuple[str, ...]
    all_groups: bool
    topic: tuple[str, ...]
    all_topics: bool
    offsets: bool
    members: bool
    state: str | None
    type: str | None
    verbose: bool
    to_earliest: bool
    to_latest: bool
    to_current: bool
    to_offset: int | None
    shift_by: int | None
    to_datetime: str | None
    by_duration: str | None
    from_file: Path | None
    dry_run: bool
    execute: bool
    export: bool
    as_json: bool

    def given(self, name: str) -> bool:
        """Whether an option was given; an offset may well be 0."""
        value = getattr(self, name)
        return value is not None and value is not False and value != ()

    @property
    def action(self) -> str:
        """The one action that was asked for."""
        return next(action for action in ACTIONS if self.given(action))

    def check(self) -> None:
        """Refuse combinations that mean nothing, with Kafka's rules."""
        if sum(map(self.given, ACTIONS)) != 1:
            raise click.UsageError(f"Give exactly one action: {_or(ACTIONS)}.")
        for name, allowed in ALLOWED_WITH.items():
            if self.given(name) and self.action not in allowed:
                raise click.UsageError(f"{_flag(name)} goes with {_or(allowed)}, not with {_flag(self.action)}.")
        if self.group and self.all_groups:
            raise click.UsageError("Give --group or --all-groups, not both.")
        if self.action not in ("list", "validate_regex") and not (self.group or self.all_groups):
            wanted = "--group" if self.delete_offsets else "--group or --all-groups"
            raise click.UsageError(f"{_flag(self.action)} needs {wanted}.")
        if self.describe and sum(map(self.given, REPORTS)) > 1:
            raise click.UsageError("--describe takes one of --offsets, --members and --state.")
        if self.describe and self.state:
            raise click.UsageError(f"--describe shows the state of a group: leave out {self.state} after --state.")
        if self.delete_offsets and (not self.topic or len(self.group) != 1):
            raise click.UsageError("--delete-offsets needs one --group, and at least one --topic.")
        if self.reset_offsets:
            self._check_reset()

    def _check_reset(self) -> None:
        if self.dry_run and self.execute:
            raise click.UsageError("Give --dry-run or --execute, not both.")
        if sum(map(self.given, SCENARIOS)) != 1:
            raise click.UsageError(f"--reset-offsets needs exactly one of {', '.join(map(_flag, SCENARIOS))}.")
        if self.topic and self.all_topics:
            raise click.UsageError("Give --topic or --all-topics, not both.")
        if not (self.topic or self.all_topics or self.from_file):
            raise click.UsageError("--reset-offsets needs --topic or --all-topics: it does not guess.")
        if self.export and self.as_json:
            raise click.UsageError("Give --export (CSV) or --json, not both.")


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")


def _or(names: tuple[str, ...]) -> str:
    *first, last = map(_flag, names)
    return f"{', '.join(first)} or {last}" if first else last


@click.group(
    cls=Group,
    invoke_without_command=True,
    examples=[
        ("see what is there", "barnabas groups --list --state"),
        ("how far behind is a group?", "barnabas groups --describe --group billing"),
        ("who is in it, and who reads what", "barnabas groups --describe --group billing --members --verbose"),
        (
            "read a topic again from the start: first look, then do it",
            "barnabas groups --reset-offsets --group billing --topic orders --to-earliest --dry-run\n"
            "  barnabas groups --reset-offsets --group billing --topic orders --to-earliest --execute",
        ),
        (
            "two partitions, from a point in time on (UTC unless it says otherwise)",
            "barnabas groups --reset-offsets --group billing --topic orders:0,3 "
            "--to-datetime 2025-01-31T06:00:00.000 --execute",
        ),
        (
            "the last two hours again",
            "barnabas groups --reset-offsets --group billing --all-topics --by-duration PT2H --execute",
        ),
        (
            "keep the offsets in a file, and bring them back",
            "barnabas groups --reset-offsets --group billing --all-topics --to-current --export > offsets.csv\n"
            "  barnabas groups --reset-offsets --group billing --from-file offsets.csv --execute",
        ),
        (
            "forget a topic, or the whole group",
            "barnabas groups --delete-offsets --group billing --topic orders\n"
            "  barnabas groups --delete --group billing",
        ),
        ("lag for a script", "barnabas groups --describe --all-groups --json | jq '.[].partitions[].lag'"),
    ],
)
@option("--list", is_flag=True, help="List groups; with --state and --type also what they are.", section="Actions")
@option("--describe", is_flag=True, help="Show committed offsets and lag, members, or state.", section="Actions")
@option("--reset-offsets", is_flag=True, help="Move the offsets of a group without members.", section="Actions")
@option("--delete", is_flag=True, help="Delete groups without members, and their offsets.", section="Actions")
@option("--delete-offsets", is_flag=True, help="Delete what a group committed for a topic.", section="Actions")
@option(
    "--validate-regex",
    metavar="PATTERN",
    help="Check a pattern of topics, as members of the new protocol may subscribe to one.",
    section="Actions",
)
@option("--group", metavar="ID", multiple=True, help="The group; repeatable.", section="Groups and topics")
@option("--all-groups", is_flag=True, help="All groups.", section="Groups and topics")
@option(
    "--topic",
    metavar="NAME[:0,1,...]",
    multiple=True,
    help="A topic, or some of its partitions; repeatable.",
    section="Groups and topics",
)
@option(
    "--all-topics",
    is_flag=True,
    help="Whatever the group has committed offsets for (--reset-offsets).",
    section="Groups and topics",
)
@option("--offsets", is_flag=True, help="Offsets and lag of each partition; the default.", section="What to show")
@option("--members", is_flag=True, help="The members, and how many partitions each has.", section="What to show")
@option(
    "--state",
    is_flag=False,
    flag_value="",
    metavar="[STATE,...]",
    help="Coordinator, assignor and state. With --list: also the state, or only groups in these states.",
    section="What to show",
)
@option(
    "--type",
    is_flag=False,
    flag_value="",
    metavar="[TYPE,...]",
    help="With --list: also the type, or only groups of these types (classic, consumer).",
    section="What to show",
)
@option("--verbose", is_flag=True, help="More columns: epochs, and who has which partition.", section="What to show")
@option("--to-earliest", is_flag=True, help="To the first record there is.", section="Where to reset to")
@option("--to-latest", is_flag=True, help="To the end: only what comes from now on.", section="Where to reset to")
@option(
    "--to-current", is_flag=True, help="To what is committed; to the end where nothing is.", section="Where to reset to"
)
@option("--to-offset", type=SIGNED64, metavar="N", help="To this offset.", section="Where to reset to")
@option(
    "--shift-by",
    type=SIGNED64,
    metavar="N",
    help="N records on, or back if N is negative.",
    section="Where to reset to",
)
@option(
    "--to-datetime",
    metavar="TIME",
    help="To the first record from YYYY-MM-DDThh:mm:ss.sss on; UTC, unless followed by +hh:mm.",
    section="Where to reset to",
)
@option(
    "--by-duration",
    metavar="PnDTnHnMnS",
    help="To the first record of the last so many days, hours, minutes, seconds.",
    section="Where to reset to",
)
@option(
    "--from-file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="FILE",
    help="To what a file says that --export made.",
    section="Where to reset to",
)
@option("--dry-run", is_flag=True, help="Show what would happen; the default.", section="Where to reset to")
@option("--execute", is_flag=True, help="Do it.", section="Where to reset to")
@option("--export", is_flag=True, help="Print CSV: topic,partition,offset.", section="Where to reset to")
@connection_options
@timeout_option
@json_option
@click.pass_context
def command(ctx: click.Context, /, **values: Any) -> None:
    """List and describe consumer groups, reset and delete their offsets.

    The flags are those of kafka-consumer-groups.
    """
    if ctx.invoked_subcommand is not None:
        return
    from barnabas.cli import connection

    options = Options(**values)
    options.check()
    if options.validate_regex is not None:
        validate_regex(options.validate_regex)
        return
    with connection.open_groups(options.bootstrap_server, options.command_config, options.timeout) as groups:
        run(groups, options)


command.add_command(import_zookeeper)


def validate_regex(pattern: str) -> None:
    """`--validate-regex`: by the rules of the broker, which needs not be asked."""
    from barnabas.machines.groups.patterns import compile_pattern

    compile_pattern(pattern)
    click.echo(f"The regular expression `{pattern}` is valid.")


def run(groups: Groups, options: Options) -> None:
    """Do what the options ask for."""
    match options.action:
        case "list":
            from barnabas.cli.groups.listing import show_list

            show_list(groups, options)
        case "describe":
            from barnabas.cli.groups.describe import describe

            describe(groups, options)
        case "reset_offsets":
            from barnabas.cli.groups.reset import reset_offsets

            reset_offsets(groups, options)
        case "delete":
            from barnabas.cli.groups.deletion import delete

            delete(groups, options)
        case "delete_offsets":
            from barnabas.cli.groups.deletion import delete_offsets

            delete_offsets(groups, options)
