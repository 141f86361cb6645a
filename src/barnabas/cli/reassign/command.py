"""The command line of `barnabas reassign-partitions`; its actions are in the modules beside this one.

What differs from kafka-reassign-partitions, on purpose: errors go to standard error, --list and --verify have --json,
and --generate proposes by the rules by which Barnabas places new topics.
"""

from __future__ import annotations

import click

from barnabas.cli.common.connection import connection_options
from barnabas.cli.common.help import Command, option
from barnabas.cli.common.options import takes
from barnabas.cli.common.output import json_option
from barnabas.cli.common.values.files import FILE
from barnabas.cli.common.values.numbers import INT64, POSITIVE32
from barnabas.cli.reassign.options import Options


@click.command(
    "reassign-partitions",
    cls=Command,
    examples=[
        (
            "propose a plan for topics on brokers 1, 2 and 3",
            """echo '{"topics": [{"topic": "orders"}]}' > topics.json
  barnabas reassign-partitions --generate --topics-to-move-json-file topics.json --broker-list 1,2,3""",
        ),
        (
            "execute a plan, with at most 10 MB per second between brokers",
            "barnabas reassign-partitions --execute --reassignment-json-file plan.json --throttle 10000000",
        ),
        (
            "show how far it is; when it is done, this also removes the limit",
            "barnabas reassign-partitions --verify --reassignment-json-file plan.json",
        ),
        ("list all moves", "barnabas reassign-partitions --list"),
        ("cancel it", "barnabas reassign-partitions --cancel --reassignment-json-file plan.json"),
    ],
)
@option("--generate", is_flag=True, help="Propose a plan, and change nothing.", section="Actions")
@option("--execute", is_flag=True, help="Start to move partitions as a plan says.", section="Actions")
@option(
    "--verify",
    is_flag=True,
    help="Show how far the moves of a plan are; if they are done, remove the limits.",
    section="Actions",
)
@option("--cancel", is_flag=True, help="Cancel the moves of a plan that are in progress.", section="Actions")
@option("--list", is_flag=True, help="List moves that are in progress.", section="Actions")
@option(
    "--reassignment-json-file",
    type=FILE,
    metavar="FILE",
    help='The plan: {"partitions": [{"topic": "t", "partition": 0, "replicas": [1, 2], '
    '"log_dirs": ["any", "/disk"]}], "version": 1}; log_dirs may be left out. Brokers of Barnabas put '
    "a new replica into its directory, but do not move a replica between directories.",
    section="What",
)
@option(
    "--topics-to-move-json-file",
    type=FILE,
    metavar="FILE",
    help='The topics for --generate: {"topics": [{"topic": "t"}], "version": 1}.',
    section="What",
)
@option("--broker-list", metavar="1,2,...", help="The brokers for --generate.", section="What")
@option("--disable-rack-aware", is_flag=True, help="Ignore racks (--generate).", section="What")
@option("--additional", is_flag=True, help="Start although other moves are in progress (--execute).", section="What")
@option(
    "--disallow-replication-factor-change",
    is_flag=True,
    help="Refuse a plan with more or fewer replicas (--execute).",
    section="What",
)
@option(
    "--throttle",
    type=INT64,
    metavar="BYTES",
    help="The most bytes per second between brokers (--execute).",
    section="Limits",
)
@option(
    "--replica-alter-log-dirs-throttle",
    type=INT64,
    metavar="BYTES",
    help="The most bytes per second between directories of a broker (--execute).",
    section="Limits",
)
@option("--preserve-throttles", is_flag=True, help="Do not remove limits (--verify, --cancel).", section="Limits")
@option(
    "--timeout",
    type=POSITIVE32,
    metavar="MS",
    help="How long to wait until moves between directories start.  [default: 10000]",
    section="Limits",
)
@connection_options
@json_option
@takes(Options)
def command(options: Options) -> None:
    """Move partitions to other brokers or directories. The flags are those of kafka-reassign-partitions."""
    from barnabas.cli.reassign import cancel, execute, generate, verify

    actions = {
        "generate": generate.generate,
        "execute": execute.execute,
        "verify": verify.verify,
        "cancel": cancel.cancel,
        "list": verify.show_list,
    }
    with options.connect() as cluster:
        actions[options.action](cluster, options)
