"""`barnabas consume`: kafka-console-consumer with its flags, and more ways to see a record.

What differs from kafka-console-consumer, on purpose: --bootstrap-server has a default; without --group there is no
group, so nothing is left behind at the broker; print.epoch shows the epoch; --timeout-ms ends without a word.
"""

from __future__ import annotations

import math
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

import click

from barnabas.cli.connection import connection_options
from barnabas.cli.failures import INTERRUPTED, Failed
from barnabas.cli.help import Command, option
from barnabas.cli.numbers import INT32, MAX_INT64, SIGNED64, Whole
from barnabas.cli.output import remark
from barnabas.cli.progress import progress
from barnabas.cli.records import printing
from barnabas.cli.records.filters import Filter
from barnabas.cli.records.formats import STRING, choose, of_class
from barnabas.cli.records.options import check_properties, format_options, old_and_new, one_file, reach
from barnabas.cli.records.printing import JsonPrinter, LinePrinter, NoPrinter, as_json
from barnabas.cli.records.waiting import Waiting

if TYPE_CHECKING:
    from collections.abc import Iterator

    from barnabas.cli.records.formats import Format
    from barnabas.clients.consumer import Consumer
    from barnabas.clients.records import ConsumerRecord

BATCH: Final = 500
WAIT: Final = 0.5
CREATES: Final = "allow.auto.create.topics"


class Printer(Protocol):
    """Makes a line of a record."""

    def line(self, record: ConsumerRecord[bytes, bytes]) -> bytes:
        """The line, with its end."""
        ...


@click.command(
    cls=Command,
    examples=[
        ("what is written from now on", "barnabas consume --topic orders"),
        ("everything, and then stop", "barnabas consume --topic orders --from-beginning --until-end"),
        (
            "keys and offsets too",
            "barnabas consume --topic orders --from-beginning --formatter-property print.key=true "
            "--formatter-property print.offset=true",
        ),
        ("the last words of one partition", "barnabas consume --topic orders --partition 2 --offset 1000"),
        ("as a member of a group, which goes on where it stopped", "barnabas consume --topic orders --group billing"),
        (
            "only some records of JSON",
            "barnabas consume --topic orders --value-format json --filter 'value.total > 100 and key != None'",
        ),
        (
            "everything about each record, for a script",
            "barnabas consume --topic orders --from-beginning --json | jq .headers",
        ),
        ("Avro", "barnabas consume --topic orders --value-schema order.avsc"),
        ("Protobuf", "barnabas consume --topic orders --value-schema order.proto:shop.Order"),
    ],
)
@option("--topic", metavar="NAME", help="The topic to read.", section="What")
@option("--include", metavar="PATTERN", help="Topics by a regular expression for whole names.", section="What")
@option("--whitelist", metavar="PATTERN", hidden=True)
@option(
    "--from-beginning",
    is_flag=True,
    help="Begin with the first record, where the group has no place yet.",
    section="What",
)
@option("--partition", type=INT32, metavar="N", help="Only this partition.", section="What")
@option(
    "--offset",
    metavar="OFFSET",
    help="Begin here (with --partition): a number, earliest or latest.  [default: latest]",
    section="What",
)
@option("--group", metavar="ID", help="Read as a member of this group, and commit.", section="What")
@option(
    "--filter",
    "expression",
    metavar="EXPRESSION",
    help="Show only records for which this is true, as in: value.total > 100 and startswith(key, 'eu-').",
    section="What",
)
@option("--isolation-level", metavar="LEVEL", help="read_uncommitted (the default) or read_committed.", section="What")
@option(
    "--max-messages",
    type=Whole(-1, MAX_INT64),
    metavar="N",
    help="Stop after N records.",
    section="When to stop",
)
@option("--timeout-ms", type=SIGNED64, metavar="MS", help="Stop when nothing came for so long.", section="When to stop")
@option("--until-end", is_flag=True, help="Stop where the topic ended at the start.", section="When to stop")
@option("--skip-message-on-error", is_flag=True, help="Go on after what cannot be read.", section="When to stop")
@format_options
@option("--key-deserializer", metavar="CLASS", help="A deserializer of Java, as a format.", section="Format")
@option("--value-deserializer", metavar="CLASS", help="A deserializer of Java, as a format.", section="Format")
@option(
    "--formatter-property",
    metavar="NAME=VALUE",
    multiple=True,
    help="What lines show: print.key, .timestamp, .partition, .offset, .epoch, .headers, .value (true or false), "
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
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="The same in a file.",
    section="Format",
)
@option("--formatter", metavar="CLASS", help="Kafka's Default- or NoOpMessageFormatter.", section="Format")
@option("--json", "as_json_lines", is_flag=True, help="Print each record as a line of JSON.", section="Format")
@option("--enable-systest-events", is_flag=True, help="Taken for Kafka's sake; has no effect.", section="Format")
@option(
    "--command-property",
    metavar="NAME=VALUE",
    multiple=True,
    help="A property of the consumer; repeatable.",
    section="Connection",
)
@option(
    "--consumer-property",
    metavar="NAME=VALUE",
    multiple=True,
    help="Older name of --command-property.",
    section="Connection",
)
@option(
    "--consumer.config",
    "consumer_config",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Older name of --command-config.",
    section="Connection",
)
@connection_options
@click.pass_context
def command(ctx: click.Context, /, **options: Any) -> None:
    """Print records of a topic. The flags are those of kafka-console-consumer."""
    check(options)
    show = Show.of(options)
    properties = consumer_properties(options)

    from barnabas.clients.consumer import Consumer

    reach(options["bootstrap_server"])
    interrupted = False
    try:
        if is_there(options, properties):
            consumer: Consumer[bytes, bytes] = Consumer(options["bootstrap_server"], config=properties)
            with consumer:
                begin(consumer, options)
                waiting = Waiting(consumer, options["bootstrap_server"], properties, skip=show.skip_errors)
                run(consumer, show, options, waiting)
    except KeyboardInterrupt:
        interrupted = True
    except BrokenPipeError:
        remark("Unable to write to standard out, closing consumer.")
        sys.stdout = None  # nothing is there to be flushed at the exit
    finally:
        if show.matches is not None and show.matches.misfit and not show.count:
            remark(f"--filter fits none of these records: {show.matches.misfit}.")
        remark(f"Processed a total of {show.count} messages")
    if interrupted:
        ctx.exit(INTERRUPTED)


@dataclass(slots=True)
class Show:
    """Which records are shown, how, and how many were."""

    key: Format
    value: Format
    printer: Printer
    matches: Filter | None
    skip_errors: bool
    count: int = 0

    @classmethod
    def of(cls, options: dict[str, Any]) -> Show:
        """What the options ask for."""
        properties = one_file(options["formatter_config"], None, "--formatter-config", "")
        properties |= old_and_new(
            options["formatter_property"], options["old_property"], "--formatter-property", "--property"
        )
        key, value = (choose_format(part, options, properties) for part in ("key", "value"))
        check_properties(properties, printing.PROPERTIES, printing.SWITCHES, "--formatter-property")
        printer: Printer
        formatter = (options["formatter"] or "DefaultMessageFormatter").rpartition(".")[2]
        if options["as_json_lines"]:
            printer = JsonPrinter(key, value)
        elif formatter == "DefaultMessageFormatter":
            printer = LinePrinter(properties, key, value)
        elif formatter == "NoOpMessageFormatter":
            printer = NoPrinter()
        else:
            raise click.UsageError(
                f"--formatter {options['formatter']}: a Java class cannot be loaded here; see --json."
            )
        expression = options["expression"]
        matches = Filter(expression) if expression else None
        return cls(key, value, printer, matches, skip_errors=options["skip_message_on_error"])

    def show(self, record: ConsumerRecord[bytes, bytes]) -> None:
        """Print a record, if it is one of those that are wanted; raises Failed for what cannot be read."""
        try:
            if self.matches is not None and not self.matches(self._fields(record)):
                return
            line = self.printer.line(record)
        except Exception as error:
            what = (
                f"{record.topic_partition} at offset {record.offset} is not of the format that was asked for: {error}"
            )
            if not self.skip_errors:
                raise Failed(f"{what}. --skip-message-on-error goes on after it.") from error
            remark(f"Skipped: {what}")
            self.count += 1
            return
        self.count += 1
        sys.stdout.buffer.write(line)

    def _fields(self, record: ConsumerRecord[bytes, bytes]) -> dict[str, Any]:
        fields = as_json(record, self.key, self.value)
        fields["headers"] = {name: None if text is None else STRING.decode(text) for name, text in record.headers}
        return fields


def choose_format(part: str, options: dict[str, Any], properties: dict[str, str]) -> Format:
    """The format of keys or values: by its name, by its schema, or by the name of Java's deserializer."""
    java = options[f"{part}_deserializer"] or properties.get(f"{part}.deserializer")
    return choose(options[f"{part}_format"] or (of_class(java) if java else None), options[f"{part}_schema"])


def check(options: dict[str, Any]) -> None:
    """Refuse combinations that mean nothing, with Kafka's rules."""
    if options["whitelist"]:
        remark("--whitelist is from older Kafkas: use --include.")
        options["include"] = options["include"] or options["whitelist"]
    if (options["topic"] is None) == (options["include"] is None):
        raise click.UsageError("Give --topic or --include.")
    if options["partition"] is None:
        if options["offset"] is not None:
            raise click.UsageError("--offset needs --partition.")
        return
    if options["topic"] is None:
        raise click.UsageError("--partition needs --topic.")
    if options["from_beginning"] and options["offset"] is not None:
        raise click.UsageError("--from-beginning and --offset say the same thing differently: give one of them.")
    if options["group"]:
        raise click.UsageError("A group shares out partitions itself: --group does not go with --partition.")
    offset = options["offset"] or ""
    if offset.isdecimal() and int(offset) > MAX_INT64:
        raise click.UsageError(f"--offset {offset}: an offset is at most {MAX_INT64}.")


def consumer_properties(options: dict[str, Any]) -> dict[str, Any]:
    """Properties of the consumer: a file, then pairs, then flags."""
    found: dict[str, Any] = {"client.id": "console-consumer"}
    found |= one_file(options["command_config"], options["consumer_config"], "--command-config", "--consumer.config")
    found |= old_and_new(
        options["command_property"], options["consumer_property"], "--command-property", "--consumer-property"
    )
    for name in ("bootstrap.servers", "key.deserializer", "value.deserializer"):
        found.pop(name, None)
    group = options["group"]
    if group and found.get("group.id", group) != group:
        raise click.UsageError(f"--group says {group}, and a property {found['group.id']}.")
    if group:
        found["group.id"] = group
    if options["from_beginning"] and found.get("auto.offset.reset", "earliest") != "earliest":
        raise click.UsageError(f"--from-beginning does not go with auto.offset.reset={found['auto.offset.reset']}.")
    if options["from_beginning"]:
        found["auto.offset.reset"] = "earliest"
    if options["isolation_level"]:
        found["isolation.level"] = options["isolation_level"]
    found.setdefault("isolation.level", "read_uncommitted")  # as in Kafka; librdkafka has it the other way round
    return found


def is_there(options: dict[str, Any], properties: dict[str, Any]) -> bool:
    """Whether the topic is there; waits for one that is not, for --timeout-ms. Raises Failed where nothing can come.

    A topic that is missing would look like one without records. Waiting does not make it, unless the property
    allow.auto.create.topics says so: then the consumer does.
    """
    topic = options["topic"]
    if topic is None or _is_listed(options):
        return True
    if options["until_end"] or options["partition"] is not None:
        raise Failed(f"There is no topic {topic}: `barnabas topics --list` shows what is there.")
    if properties.setdefault(CREATES, "false") == "true":
        remark(f"There is no topic {topic} yet: waiting for it.")
        return True
    remark(f"There is no topic {topic} yet: waiting for it. `barnabas topics --create --topic {topic}` makes it.")
    given = options["timeout_ms"]
    deadline = math.inf if given is None or given < 0 else time.monotonic() + given / 1000
    while time.monotonic() < deadline:
        time.sleep(min(WAIT, max(0.0, deadline - time.monotonic())))
        if _is_listed(options):
            properties.setdefault("auto.offset.reset", "earliest")  # all that is in it came after the start
            return True
    return False


def _is_listed(options: dict[str, Any]) -> bool:
    from barnabas.clients.topic_list import list_topics

    listed = list_topics(options["bootstrap_server"])
    return listed is None or any(each.name == options["topic"] for each in listed)


def begin(consumer: Consumer[bytes, bytes], options: dict[str, Any]) -> None:
    """Subscribe to topics, or take one partition."""
    from barnabas.clients.records import TopicPartition
    from barnabas.clients.seeking import BEGINNING, END

    if options["partition"] is None:
        consumer.subscribe(options["topic"] or pattern(options["include"]))
        return
    offset = (options["offset"] or ("earliest" if options["from_beginning"] else "latest")).lower()
    if offset not in ("earliest", "latest") and not offset.isdecimal():
        raise click.UsageError(f"--offset {offset}: give earliest, latest or a number that is not negative.")
    place = {"earliest": BEGINNING, "latest": END}.get(offset)
    partition = TopicPartition(options["topic"], options["partition"])
    if partition not in (known := consumer.partitions(options["topic"])):
        raise Failed(f"{options['topic']} has no partition {options['partition']}: its last one is {len(known) - 1}.")
    consumer.assign({partition: int(offset) if place is None else place})


def pattern(text: str) -> Any:
    """A regular expression for names of topics; commas separate several, as in Kafka."""
    import re

    try:
        return re.compile(text.strip("\"'").replace(",", "|"))
    except re.error as error:
        raise click.UsageError(f"--include {text} is not a regular expression: {error}.") from error


def run(consumer: Consumer[bytes, bytes], show: Show, options: dict[str, Any], waiting: Waiting) -> None:
    """Print records until it is time to stop."""
    most = options["max_messages"]
    if most == -1:
        most = None
    if most == 0:
        return
    if options["until_end"]:
        with progress("Reading", most, wanted=not sys.stdout.isatty()) as watched:
            for record in consumer.until_end(waiting.waited):
                waiting.came()
                show.show(record)
                watched(1)
                if show.count == most:
                    break
        sys.stdout.buffer.flush()
        consumer.done()
        return
    for batch in batches(consumer, show, most, options["timeout_ms"], waiting):
        for record in batch:
            show.show(record)
        sys.stdout.buffer.flush()
        consumer.done()
        if show.count == most:
            return


def batches(
    consumer: Consumer[bytes, bytes], show: Show, most: int | None, timeout_ms: int | None, waiting: Waiting
) -> Iterator[list[ConsumerRecord[bytes, bytes]]]:
    """Records as they come, never more than are still wanted, until nothing comes for the time that was given."""
    quiet_since = time.monotonic()
    while True:
        batch = consumer.poll(WAIT, BATCH if most is None else min(BATCH, most - show.count))
        if batch:
            yield batch
            quiet_since = time.monotonic()
            waiting.came()
        elif timeout_ms is not None and timeout_ms >= 0 and time.monotonic() - quiet_since > timeout_ms / 1000:
            waiting.look()
            return
        else:
            waiting.waited()
