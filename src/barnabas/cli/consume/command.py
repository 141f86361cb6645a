"""The command line of `barnabas consume`.

What differs from kafka-console-consumer, on purpose: --bootstrap-server has a default; without --group there is no
group, so nothing is left behind at the broker; print.epoch shows the epoch; --timeout-ms ends without a word. And from
kafka-console-share-consumer: a share group that is new begins with the first message (as `Queue` does).
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from barnabas.cli.common.client_properties import client_options
from barnabas.cli.common.connection import connection_options
from barnabas.cli.common.failures import INTERRUPTED
from barnabas.cli.common.help import Command, option
from barnabas.cli.common.options import takes
from barnabas.cli.common.output import remark
from barnabas.cli.common.records.options import format_options
from barnabas.cli.common.values.files import FILE
from barnabas.cli.common.values.numbers import INT32, SIGNED64, Whole
from barnabas.cli.consume.options import Options
from barnabas.cli.consume.reading import read
from barnabas.cli.consume.sharing import read_shared
from barnabas.cli.consume.shown_records import ShownRecords
from barnabas.cli.consume.starting import begin, topic_is_there
from barnabas.cli.consume.waiting import Waiting
from barnabas.model.numbers import MAX_INT64

if TYPE_CHECKING:
    from barnabas.clients.consumer.consumer import Consumer


@click.command(
    cls=Command,
    examples=[
        ("print records as they are written", "barnabas consume --topic orders"),
        ("print all records, and stop", "barnabas consume --topic orders --from-beginning --until-end"),
        (
            "print keys and offsets, too",
            "barnabas consume --topic orders --from-beginning --formatter-property print.key=true "
            "--formatter-property print.offset=true",
        ),
        ("start at an offset of one partition", "barnabas consume --topic orders --partition 2 --offset 1000"),
        (
            "read as a member of a group, which continues where it stopped",
            "barnabas consume --topic orders --group billing",
        ),
        (
            "print only records that match an expression",
            "barnabas consume --topic orders --value-format json --filter 'value.total > 100 and key != None'",
        ),
        (
            "print all fields of each record for a script",
            "barnabas consume --topic orders --from-beginning --json | jq .headers",
        ),
        (
            "take messages from a queue, which no other worker gets, and say that they are done",
            "barnabas consume --topic emails --share --group mailers",
        ),
        ("read Avro", "barnabas consume --topic orders --value-schema order.avsc"),
        ("read Protobuf", "barnabas consume --topic orders --value-schema order.proto:shop.Order"),
    ],
)
@option("--topic", metavar="NAME", help="The topic to read.", section="What")
@option(
    "--include", metavar="PATTERN", help="The topics to read: a regular expression for whole names.", section="What"
)
@option("--whitelist", metavar="PATTERN", hidden=True)
@option(
    "--from-beginning",
    is_flag=True,
    help="Start at the first record, unless the group has committed an offset.",
    section="What",
)
@option("--partition", type=INT32, metavar="N", help="Read only this partition.", section="What")
@option(
    "--offset",
    metavar="OFFSET",
    help="Where to start in the partition of --partition: an offset, earliest or latest.  [default: latest]",
    section="What",
)
@option("--group", metavar="ID", help="Read as a member of this consumer group, and commit offsets.", section="What")
@option(
    "--share",
    is_flag=True,
    help="Take messages from a queue: --group is a share group (default: console-share-consumer), in which each "
    "message goes to one member. Messages are acknowledged when they are printed.",
    section="What",
)
@option("--release", is_flag=True, help="With --share: give messages back, for another delivery.", section="What")
@option("--reject", is_flag=True, help="With --share: reject messages, so that nobody gets them again.", section="What")
@option(
    "--filter",
    "expression",
    metavar="EXPRESSION",
    help="Print only records for which this expression is true, such as: value.total > 100 and startswith(key, 'eu-').",
    section="What",
)
@option(
    "--isolation-level",
    metavar="LEVEL",
    help="read_committed to leave out records of open and aborted transactions.  [default: read_uncommitted]",
    section="What",
)
@option(
    "--max-messages",
    type=Whole(-1, MAX_INT64),
    metavar="N",
    help="Stop after N records.",
    section="When to stop",
)
@option(
    "--timeout-ms", type=SIGNED64, metavar="MS", help="Stop if no record arrives for this time.", section="When to stop"
)
@option(
    "--until-end",
    is_flag=True,
    help="Stop at the end that the topic has when the command starts.",
    section="When to stop",
)
@option("--skip-message-on-error", is_flag=True, help="Skip records that cannot be read.", section="When to stop")
@option(
    "--reject-message-on-error",
    is_flag=True,
    help="With --share: reject messages that cannot be read.",
    section="When to stop",
)
@format_options
@option(
    "--key-deserializer",
    metavar="CLASS",
    help="The format, given as one of Kafka's Java deserializers.",
    section="Format",
)
@option(
    "--value-deserializer",
    metavar="CLASS",
    help="The format, given as one of Kafka's Java deserializers.",
    section="Format",
)
@option(
    "--formatter-property",
    metavar="NAME=VALUE",
    multiple=True,
    help="What to print: print.key, .timestamp, .partition, .offset, .delivery, .epoch, .headers, .value (true or "
    "false), "
    "key.separator, line.separator, headers.separator, null.literal; repeatable.",
    section="Format",
)
@option(
    "--property",
    "old_property",
    metavar="NAME=VALUE",
    multiple=True,
    help="Older name of --formatter-property.",
    section="Format",
)
@option(
    "--formatter-config",
    type=FILE,
    help="A file with formatter properties.",
    section="Format",
)
@option(
    "--formatter",
    metavar="CLASS",
    help="DefaultMessageFormatter or NoOpMessageFormatter, as in Kafka.",
    section="Format",
)
@option("--json", "as_json_lines", is_flag=True, help="Print each record as a line of JSON.", section="Format")
@option(
    "--enable-systest-events",
    is_flag=True,
    help="Has no effect; accepted for compatibility with Kafka.",
    section="Format",
)
@client_options("consumer")
@connection_options
@takes(Options)
def command(options: Options) -> None:
    """Print records of a topic. The flags are those of kafka-console-consumer.

    With --share, messages of a queue: the flags are those of kafka-console-share-consumer.
    """
    shown = ShownRecords.of(options)
    properties = options.consumer_properties()

    from barnabas.clients.consumer.consumer import Consumer
    from barnabas.clients.logins import require_login

    require_login(options.address, properties)
    interrupted = False
    try:
        if not topic_is_there(options, properties):
            pass
        elif options.share:
            read_shared(options, shown, properties)
        else:
            consumer: Consumer[bytes, bytes] = Consumer(options.address, config=properties)
            with consumer:
                begin(consumer, options)
                waiting = Waiting(consumer, options.address, properties, skip=shown.skip_errors)
                read(consumer, shown, options, waiting)
    except KeyboardInterrupt:
        interrupted = True
    except BrokenPipeError:
        remark("Unable to write to standard out, closing consumer.")
        sys.stdout = None  # nothing is there to be flushed at the exit
    finally:
        if shown.matches is not None and shown.matches.misfit and not shown.count:
            remark(f"--filter fits none of these records: {shown.matches.misfit}.")
        remark(f"Processed a total of {shown.count} messages")
    if interrupted:
        raise click.exceptions.Exit(INTERRUPTED)
