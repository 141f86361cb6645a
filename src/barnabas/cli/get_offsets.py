"""`barnabas get-offsets`: kafka-get-offsets, which says where partitions begin and end, or what a time falls on."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

import click

from barnabas.cli.connection import connection_options
from barnabas.cli.failures import Failed
from barnabas.cli.help import Command, option
from barnabas.cli.output import Style, choose_style, json_option, print_json, print_table, remark

if TYPE_CHECKING:
    from pathlib import Path

    from barnabas.model.ids import TopicPartition

TIMES = {
    "latest": -1,
    "earliest": -2,
    "max-timestamp": -3,
    "earliest-local": -4,
    "latest-tiered": -5,
    "earliest-pending-upload": -6,
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
            "the first records since a moment (milliseconds since 1970)",
            "barnabas get-offsets --topic orders --time 1738303200000",
        ),
        (
            "partition 1 of orders, the first three of payments",
            "barnabas get-offsets --topic-partitions orders:1,payments:0-3",
        ),
    ],
)
@option(
    "--topic",
    metavar="PATTERN",
    help="Topics: a regular expression for whole names; commas separate several.  [default: all]",
    section="What",
)
@option("--partitions", metavar="0,1,...", help="These partitions of the topics.  [default: all]", section="What")
@option(
    "--topic-partitions",
    metavar="TOPIC:0,TOPIC:0-3,...",
    help="Both in one: patterns of topics, each with a partition, a range (4-, -3, 0-3; the upper end is left out), "
    "or nothing for all.",
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
    "--exclude-internal-topics", is_flag=True, help="Leave out topics that brokers keep for themselves.", section="What"
)
@connection_options
@json_option
def command(
    topic: str | None,
    partitions: str | None,
    topic_partitions: str | None,
    time: str,
    exclude_internal_topics: bool,
    bootstrap_server: str,
    command_config: Path | None,
    as_json: bool,
) -> None:
    """Show offsets of partitions: their end, their beginning, or by time. The flags are those of kafka-get-offsets.

    A partition in which nothing is that young is left out.
    """
    if topic_partitions is not None and (topic is not None or partitions is not None):
        raise click.UsageError("Give --topic-partitions, or --topic and --partitions.")
    rules = parse_rules(topic_partitions) if topic_partitions is not None else [whole_rule(topic, partitions)]
    timestamp = parse_time(time)

    from barnabas.cli import connection
    from barnabas.clients.admin import INTERNAL_TOPICS
    from barnabas.clients.log_offsets import all_leaders, offsets

    with connection.open_cluster(bootstrap_server, command_config) as cluster:
        leaders = {
            partition: leader
            for partition, leader in all_leaders(cluster).items()
            if any(rule.takes(partition) for rule in rules)
            and not (exclude_internal_topics and partition.topic in INTERNAL_TOPICS)
        }
        if not leaders:
            raise Failed("No partition matches; `barnabas topics --describe` shows those that are there.")
        found = offsets(cluster, leaders, timestamp)
    for partition in sorted(leaders.keys() - found.keys()):
        remark(f"Left out {partition}: nobody leads it.")
    show({partition: offset for partition, offset in found.items() if offset >= 0}, as_json=as_json)


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
    try:
        numbers = frozenset(int(number) for number in partitions.split(",")) if partitions else range(END)
    except ValueError as error:
        raise click.UsageError(f"--partitions {partitions} is not a list of numbers.") from error
    return Rule(_pattern(topic or ".*", "--topic"), numbers)


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
        rules.append(Rule(_pattern(match["topic"] or ".*", "--topic-partitions"), numbers))
    return rules


def _pattern(text: str, flag: str) -> re.Pattern[str]:
    try:
        return re.compile(text.replace(" ", "").strip("\"'").replace(",", "|"))
    except re.error as error:
        raise click.UsageError(f"{flag} {text} is not a regular expression: {error}.") from error
