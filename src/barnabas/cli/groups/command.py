"""The command line of `barnabas groups`; its actions are in the modules beside this one.

What differs from kafka-consumer-groups, on purpose: --bootstrap-server has a default, errors go to standard error and
make the exit code 1, one missing group does not hide the others, and a terminal gets tables.
"""

from __future__ import annotations

import click

from barnabas.cli.common.connection import connection_options, timeout_option
from barnabas.cli.common.help import CommandGroup, option
from barnabas.cli.common.options import takes
from barnabas.cli.common.output import json_option
from barnabas.cli.common.values.files import FILE
from barnabas.cli.common.values.numbers import SIGNED64
from barnabas.cli.groups.import_zookeeper import import_zookeeper
from barnabas.cli.groups.options import Options
from barnabas.cli.groups.shared_options import report_options, scope_options, target_options


@click.group(
    cls=CommandGroup,
    invoke_without_command=True,
    examples=[
        ("list groups and their states", "barnabas groups --list --state"),
        ("show how far a group lags", "barnabas groups --describe --group billing"),
        (
            "show its members, and who reads which partitions",
            "barnabas groups --describe --group billing --members --verbose",
        ),
        (
            "read a topic again from the start: look first, then commit",
            "barnabas groups --reset-offsets --group billing --topic orders --to-earliest --dry-run\n"
            "  barnabas groups --reset-offsets --group billing --topic orders --to-earliest --execute",
        ),
        (
            "read two partitions again from a time on",
            "barnabas groups --reset-offsets --group billing --topic orders:0,3 "
            "--to-datetime 2025-01-31T06:00:00.000 --execute",
        ),
        (
            "read the last two hours again",
            "barnabas groups --reset-offsets --group billing --all-topics --by-duration PT2H --execute",
        ),
        (
            "save the offsets in a file, and restore them",
            "barnabas groups --reset-offsets --group billing --all-topics --to-current --export > offsets.csv\n"
            "  barnabas groups --reset-offsets --group billing --from-file offsets.csv --execute",
        ),
        (
            "delete the offsets of a topic, or the whole group",
            "barnabas groups --delete-offsets --group billing --topic orders\n"
            "  barnabas groups --delete --group billing",
        ),
        ("print the lag for a script", "barnabas groups --describe --all-groups --json | jq '.[].partitions[].lag'"),
    ],
)
@option("--list", is_flag=True, help="List groups; --state and --type add a column each.", section="Actions")
@option("--describe", is_flag=True, help="Show committed offsets and lag, members, or state.", section="Actions")
@option(
    "--reset-offsets", is_flag=True, help="Set the committed offsets of a group that has no members.", section="Actions"
)
@option("--delete", is_flag=True, help="Delete groups that have no members, and their offsets.", section="Actions")
@option(
    "--delete-offsets",
    is_flag=True,
    help="Delete the offsets that a group has committed for a topic.",
    section="Actions",
)
@option(
    "--validate-regex",
    metavar="PATTERN",
    help="Check a regular expression that members of the consumer protocol subscribe with.",
    section="Actions",
)
@scope_options
@option(
    "--all-topics",
    is_flag=True,
    help="All topics for which the group has committed offsets (--reset-offsets).",
    section="Groups and topics",
)
@report_options
@option(
    "--state",
    is_flag=False,
    flag_value="",
    metavar="[STATE,...]",
    help="With --describe: show coordinator, assignor and state. With --list: show the state, or only groups in these "
    "states.",
    section="What to show",
)
@option(
    "--type",
    is_flag=False,
    flag_value="",
    metavar="[TYPE,...]",
    help="With --list: show the type, or only groups of these types (classic, consumer).",
    section="What to show",
)
@target_options
@option(
    "--to-current",
    is_flag=True,
    help="To the committed offset; to the end of the log where there is none.",
    section="Where to reset to",
)
@option("--to-offset", type=SIGNED64, metavar="N", help="To this offset.", section="Where to reset to")
@option(
    "--shift-by",
    type=SIGNED64,
    metavar="N",
    help="By N offsets forward, or back if N is negative.",
    section="Where to reset to",
)
@option(
    "--by-duration",
    metavar="PnDTnHnMnS",
    help="To the first record of this last time, such as PT2H for two hours.",
    section="Where to reset to",
)
@option(
    "--from-file",
    type=FILE,
    metavar="FILE",
    help="To the offsets in a file that --export wrote.",
    section="Where to reset to",
)
@option(
    "--export", is_flag=True, help="Print the new offsets as CSV: topic,partition,offset.", section="Where to reset to"
)
@connection_options
@timeout_option
@json_option
@takes(Options)
def command(options: Options) -> None:
    """List and describe consumer groups, reset and delete their offsets.

    The flags are those of kafka-consumer-groups.
    """
    with options.connect(options.timeout) as cluster:
        match options.action:
            case "list":
                from barnabas.cli.groups.listing import show_list

                show_list(cluster, options)
            case "describe":
                from barnabas.cli.groups.describe import describe

                describe(cluster, options)
            case "reset_offsets":
                from barnabas.cli.groups.reset import reset_offsets

                reset_offsets(cluster, options)
            case "delete":
                from barnabas.cli.groups.deletion import delete

                delete(cluster, options)
            case "delete_offsets":
                from barnabas.cli.groups.deletion import delete_offsets

                delete_offsets(cluster, options)
            case "validate_regex":
                validate_regex(options.validate_regex or "")


command.add_command(import_zookeeper)


def validate_regex(pattern: str) -> None:
    """`--validate-regex`: by the rules of the broker, which need not be asked."""
    from barnabas.machines.groups.consumer.patterns import compile_pattern

    compile_pattern(pattern)
    click.echo(f"The regular expression `{pattern}` is valid.")
