"""`barnabas get-offsets`: kafka-get-offsets, which says where partitions begin and end, or what a time falls on."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import click

from barnabas.cli.common.connection import ConnectionOptions, connection_options, refuse_forbidden
from barnabas.cli.common.failures import Failed
from barnabas.cli.common.help import Command, option
from barnabas.cli.common.options import takes
from barnabas.cli.common.output import Style, choose_style, json_option, print_json, print_table, remark
from barnabas.cli.common.values.pairs import parse_numbers
from barnabas.cli.common.values.topic_patterns import is_name, parse_topics
from barnabas.protocol import list_offsets

if TYPE_CHECKING:
    from barnabas.model.ids import TopicPartition

TIMES = {
    "latest": list_offsets.LATEST,
    "earliest": list_offsets.EARLIEST,
    "max-timestamp": list_offsets.MAX_TIMESTAMP,
    "earliest-local": list_offsets.EARLIEST_LOCAL,
    "latest-tiered": list_offsets.LATEST_TIERED,
    "earliest-pending-upload": list_offsets.EARLIEST_PENDING_UPLOAD,
}
RULE = re.compile(r"(?P<topic>[^:,]*)(?::(?:(?P<one>[0-9]+)|(?P<low>[0-9]*)-(?P<high>[0-9]*))?)?")
END = 2**31


class Rule(NamedTuple):
    """Which topics, by a regular expression for the whole name, and which of their partitions."""

    topic: re.Pattern[str]
    partitions: range | frozenset[int]

    def takes(self, partition: TopicPartition) -> bool:
        """Whether a partition is meant."""
        return partition.partition in self.partitions and self.topic.fullmatch(partition.topic) is not None


@dataclass(frozen=True, kw_only=True)
class Options(ConnectionOptions):
    """The options of `barnabas get-offsets`."""

    topic: str | None
    partitions: str | None
    topic_partitions: str | None
    time: str
    exclude_internal_topics: bool
    as_json: bool

    def check(self) -> None:
        """Refuse options that do not go together, by Kafka's rules."""
        if self.topic_partitions is not None and (self.topic is not None or self.partitions is not None):
            raise click.UsageError("Give --topic-partitions, or --topic and --partitions.")

    def rules(self) -> list[Rule]:
        """Which partitions are meant."""
        if self.topic_partitions is not None:
            return parse_rules(self.topic_partitions)
        return [whole_rule(self.topic, self.partitions)]


@click.command(
    cls=Command,
    examples=[
        ("where all partitions end", "barnabas get-offsets"),
        (
            "how many records were ever written to a topic",
            "barnabas get-offsets --topic orders --json | jq '[.[].offset] | add'",
        ),
        ("where a topic begins", "barnabas get-offsets --topic orders --time earliest"),
        (
            "the first offsets at or after a time (milliseconds since 1970)",
            "barnabas get-offsets --topic orders --time 1738303200000",
        ),
        (
            "partition 1 of orders, and the first three of payments",
            "barnabas get-offsets --topic-partitions orders:1,payments:0-3",
        ),
    ],
)
@option(
    "--topic",
    metavar="PATTERN",
    help="The topics: a regular expression for whole names; commas separate several.  [default: all]",
    section="What",
)
@option("--partitions", metavar="0,1,...", help="Only these partitions of the topics.  [default: all]", section="What")
@option(
    "--topic-partitions",
    metavar="TOPIC:0,TOPIC:0-3,...",
    help="Topics and partitions together: a pattern of topics, and behind a colon a partition or a range (0-3 is 0, 1 "
    "and 2; 4- and -3 are open). Without a colon, all partitions.",
    section="What",
)
@option(
    "--time",
    metavar="TIME",
    default="latest",
    show_default=True,
    help=f"Milliseconds since 1970, or one of {', '.join(TIMES)}.",
    section="What",
)
@option(
    "--exclude-internal-topics",
    is_flag=True,
    help="Leave out internal topics, such as __consumer_offsets.",
    section="What",
)
@connection_options
@json_option
@takes(Options)
def command(options: Options) -> None:
    """Show offsets of partitions: their end, their start, or by time. The flags are those of kafka-get-offsets.

    A partition that has no record from that time on is left out.
    """
    from barnabas.model.internal_topics import INTERNAL_TOPICS

    rules, timestamp = options.rules(), parse_time(options.time)
    left_out = INTERNAL_TOPICS if options.exclude_internal_topics else frozenset[str]()
    with options.connect() as cluster:
        leaders = {
            partition: leader
            for partition, leader in cluster.offsets.all_leaders().items()
            if any(rule.takes(partition) for rule in rules) and partition.topic not in left_out
        }
        if not leaders:
            if options.topic is not None and is_name(options.topic):
                refuse_forbidden(cluster, options.topic)
            raise Failed("No partition matches. `barnabas topics --describe` shows all partitions.")
        found = cluster.offsets.at(leaders, timestamp)
    for partition in sorted(leaders.keys() - found.keys()):
        remark(f"Left out {partition}: it has no leader.")
    show({partition: offset for partition, offset in found.items() if offset >= 0}, as_json=options.as_json)


def show(found: dict[TopicPartition, int], *, as_json: bool) -> None:
    """A line per partition; in a pipe sorted as kafka-get-offsets does, by the whole name."""
    match choose_style(as_json=as_json):
        case Style.JSON:
            print_json(
                [
                    {"topic": partition.topic, "partition": partition.partition, "offset": offset}
                    for partition, offset in sorted(found.items())
                ]
            )
        case Style.PLAIN:
            for partition, offset in sorted(found.items(), key=lambda item: str(item[0])):
                click.echo(f"{partition.topic}:{partition.partition}:{offset}")
        case Style.TABLE:
            print_table(("Topic", "Partition", "Offset"), ((*one, offset) for one, offset in sorted(found.items())))


def parse_time(text: str) -> int:
    """A name of TIMES, or a number."""
    if text in TIMES:
        return TIMES[text]
    try:
        return int(text)
    except ValueError as error:
        raise click.UsageError(f"--time {text} is neither a number nor one of {', '.join(TIMES)}.") from error


def whole_rule(topic: str | None, partitions: str | None) -> Rule:
    """--topic and --partitions as one rule."""
    numbers = frozenset(parse_numbers(partitions, "--partitions")) if partitions else range(END)
    return Rule(parse_topics(topic or ".*", "--topic"), numbers)


def parse_rules(text: str) -> list[Rule]:
    """--topic-partitions: one rule between commas."""
    rules = []
    for part in text.split(","):
        match = RULE.fullmatch(part.strip())
        if match is None:
            raise click.UsageError(f"--topic-partitions {part} is not of the form TOPIC, TOPIC:0 or TOPIC:0-3.")
        numbers: range | frozenset[int]
        if match["one"]:
            numbers = frozenset({int(match["one"])})
        else:
            numbers = range(int(match["low"] or 0), int(match["high"] or END))
        rules.append(Rule(parse_topics(match["topic"] or ".*", "--topic-partitions"), numbers))
    return rules
