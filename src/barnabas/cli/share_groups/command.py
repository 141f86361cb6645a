"""The command line of `barnabas share-groups`; its actions are in the modules beside this one.

What differs from kafka-share-groups, on purpose: --bootstrap-server has a default, errors go to standard error and make
the exit code 1, one missing group does not hide the others, and a terminal gets tables.
"""

from __future__ import annotations

import click

from barnabas.cli.common.connection import connection_options, timeout_option
from barnabas.cli.common.help import Command, option
from barnabas.cli.common.options import takes
from barnabas.cli.common.output import json_option
from barnabas.cli.groups.shared_options import report_options, scope_options, target_options
from barnabas.cli.share_groups.options import Options


@click.command(
    "share-groups",
    cls=Command,
    examples=[
        ("list share groups and their states", "barnabas share-groups --list --state"),
        ("show how many messages are left to do", "barnabas share-groups --describe --group mailers"),
        ("show the workers", "barnabas share-groups --describe --group mailers --members --verbose"),
        (
            "show which messages behind the start offset are done, given up or for another try",
            "barnabas share-groups --describe --group mailers --in-flight",
        ),
        (
            "do all messages of a topic again: look first, then change it",
            "barnabas share-groups --reset-offsets --group mailers --topic emails --to-earliest --dry-run\n"
            "  barnabas share-groups --reset-offsets --group mailers --topic emails --to-earliest --execute",
        ),
        (
            "pass over everything that is older than a time",
            "barnabas share-groups --reset-offsets --group mailers --all-topics "
            "--to-datetime 2025-01-31T06:00:00.000 --execute",
        ),
        (
            "forget a topic, or the whole group",
            "barnabas share-groups --delete-offsets --group mailers --topic emails\n"
            "  barnabas share-groups --delete --group mailers",
        ),
        (
            "print the lag for a script",
            "barnabas share-groups --describe --all-groups --json | jq '.[].partitions[].lag'",
        ),
    ],
)
@option("--list", is_flag=True, help="List share groups; --state adds a column.", section="Actions")
@option(
    "--describe",
    is_flag=True,
    help="Show start offsets and lag, members, messages in flight, or state.",
    section="Actions",
)
@option("--reset-offsets", is_flag=True, help="Set where a group that has no members goes on.", section="Actions")
@option("--delete", is_flag=True, help="Delete groups that have no members, and their state.", section="Actions")
@option(
    "--delete-offsets",
    is_flag=True,
    help="Let a group without members forget how far it is with a topic.",
    section="Actions",
)
@scope_options
@option(
    "--all-topics",
    is_flag=True,
    help="All topics that the group has a state of (--reset-offsets).",
    section="Groups and topics",
)
@report_options
@option(
    "--in-flight",
    is_flag=True,
    help="Show what is stored of messages behind the start offset: which are done, and how often others were "
    "delivered. Which of them a member holds now is not stored.",
    section="What to show",
)
@option(
    "--state",
    is_flag=False,
    flag_value="",
    metavar="[STATE,...]",
    help="With --describe: show coordinator and state. With --list: show the state, or only groups in these states.",
    section="What to show",
)
@target_options
@connection_options
@timeout_option
@json_option
@takes(Options)
def command(options: Options) -> None:
    """List and describe share groups, the groups of queues; reset and delete their offsets.

    The flags are those of kafka-share-groups, and --in-flight.
    """
    with options.connect(options.timeout) as cluster:
        match options.action:
            case "list":
                from barnabas.cli.share_groups.listing import show_list

                show_list(cluster, options)
            case "describe":
                from barnabas.cli.share_groups.describe import describe

                describe(cluster, options)
            case "reset_offsets":
                from barnabas.cli.share_groups.reset import reset_offsets

                reset_offsets(cluster, options)
            case "delete":
                from barnabas.cli.share_groups.deletion import delete

                delete(cluster, options)
            case "delete_offsets":
                from barnabas.cli.share_groups.deletion import delete_offsets

                delete_offsets(cluster, options)
