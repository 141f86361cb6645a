"""The program `barnabas`: finds the command that was asked for and loads only that one.

A broker has to listen within a fifth of a second of being executed, so a command's module is imported when the command
runs, and the list of commands below carries its own one-line help.
"""

from __future__ import annotations

import importlib
import os
import sys
from typing import Any, NamedTuple

import click

from barnabas import __version__
from barnabas.cli.common.failures import errors_in_one_line
from barnabas.cli.common.help import Context, Example, write_examples


class LazyCommand(NamedTuple):
    """Where a command lives, and the line that the program's help has for it."""

    module: str
    summary: str


COMMANDS: dict[str, dict[str, LazyCommand]] = {
    "Broker": {
        "start": LazyCommand("barnabas.cli.start.command", "Run a broker, here or in the background."),
        "stop": LazyCommand("barnabas.cli.stop", "Stop the broker of a data directory."),
        "restart": LazyCommand("barnabas.cli.restart", "Restart brokers, one after the other."),
        "top": LazyCommand("barnabas.cli.top.command", "Watch throughput, lag and slow requests."),
        "zookeeper": LazyCommand("barnabas.cli.zookeeper.command", "Run a ZooKeeper for development."),
    },
    "Topics": {
        "topics": LazyCommand("barnabas.cli.topics.command", "Create, list, describe, alter and delete topics."),
        "get-offsets": LazyCommand("barnabas.cli.get_offsets", "Show the first and the last offsets of partitions."),
        "delete-records": LazyCommand("barnabas.cli.delete_records", "Delete the oldest records of partitions."),
    },
    "Records": {
        "produce": LazyCommand("barnabas.cli.produce.command", "Send records from the keyboard, a pipe or files."),
        "consume": LazyCommand("barnabas.cli.consume.command", "Print records of a topic."),
    },
    "Groups": {
        "groups": LazyCommand("barnabas.cli.groups.command", "Show consumer groups, and reset their offsets."),
        "share-groups": LazyCommand(
            "barnabas.cli.share_groups.command", "Show the groups of queues, and reset their offsets."
        ),
    },
    "Transactions": {
        "transactions": LazyCommand("barnabas.cli.transactions.command", "Show transactions, and end those that hang."),
    },
    "Pipelines": {
        "load": LazyCommand("barnabas.cli.load.command", "Load a topic into a table, exactly once."),
        "table": LazyCommand("barnabas.cli.table.command", "Show loaded tables, compact and expire them."),
        "pipeline": LazyCommand("barnabas.cli.pipeline.command", "Run pipelines on Spark that are written in files."),
    },
    "Speed": {
        "producer-perf": LazyCommand("barnabas.cli.perf.producer", "Measure how fast records can be produced."),
        "consumer-perf": LazyCommand("barnabas.cli.perf.consumer", "Measure how fast records can be consumed."),
        "share-consumer-perf": LazyCommand(
            "barnabas.cli.perf.share_consumer", "Measure how fast messages of a queue are acknowledged."
        ),
        "latency": LazyCommand("barnabas.cli.perf.latency", "Measure the time from producer to consumer."),
    },
    "Cluster": {
        "console": LazyCommand("barnabas.cli.console.command", "Run a web console for a cluster."),
        "cluster": LazyCommand("barnabas.cli.cluster", "Show a cluster's id and its brokers."),
        "configs": LazyCommand("barnabas.cli.configs.command", "Show and change configs while brokers run."),
        "leader-election": LazyCommand("barnabas.cli.leader_election", "Elect leaders of partitions."),
        "reassign-partitions": LazyCommand(
            "barnabas.cli.reassign.command", "Move partitions to other brokers or directories."
        ),
        "log-dirs": LazyCommand("barnabas.cli.log_dirs", "Show the size of partitions on disk, and where they are."),
        "features": LazyCommand("barnabas.cli.features", "Show and set the levels of features."),
        "broker-api-versions": LazyCommand(
            "barnabas.cli.broker_api_versions.command", "Show which APIs brokers serve."
        ),
    },
    "Security": {
        "security": LazyCommand("barnabas.cli.security.command", "Make certificates, users and settings."),
        "delegation-tokens": LazyCommand(
            "barnabas.cli.delegation_tokens", "Make, renew, end and list delegation tokens."
        ),
        "acls": LazyCommand("barnabas.cli.acls.command", "List, add and remove ACLs."),
        "quotas": LazyCommand("barnabas.cli.quotas.command", "Show and change client quotas."),
        "users": LazyCommand("barnabas.cli.users.command", "List, add and delete users of SCRAM."),
    },
    "Files": {
        "log": LazyCommand("barnabas.cli.log.command", "Look into log files, check and repair them."),
        "metadata": LazyCommand("barnabas.cli.metadata.command", "Copy topics and configs to another metadata store."),
    },
    "Shell": {
        "completion": LazyCommand("barnabas.cli.completion", "Print a completion script for your shell."),
        "shims": LazyCommand("barnabas.cli.shims.command", "Write programs named like Kafka's scripts."),
    },
}

EXAMPLES: list[Example] = [
    ("start a broker on localhost:9092 with its data in ./data", "barnabas start"),
    ("create a topic on it", "barnabas topics --create --topic greetings --partitions 3"),
    ("show the options of a command", "barnabas topics --help"),
]


class LazyGroup(click.Group):
    """A group whose commands are imported when they are asked for: each is `command` in its module."""

    context_class = Context

    def list_commands(self, ctx: click.Context) -> list[str]:
        """All commands, in the order of the help."""
        return [name for commands in COMMANDS.values() for name in commands]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import one command, or None when there is none of that name."""
        for commands in COMMANDS.values():
            if cmd_name in commands:
                found = importlib.import_module(commands[cmd_name].module).command
                assert isinstance(found, click.Command)
                return found
        return super().get_command(ctx, cmd_name)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Read what stands before the command, where no command's options can."""
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            behind = f"Options go behind the command: `barnabas COMMAND {error.option_name}`."
            raise click.UsageError(f"{error.format_message()} {behind}", ctx) from None

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command that was typed; one that is not there may be near to one, or have Kafka's name."""
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            suggested = _suggest_command(args[0], self.list_commands(ctx))
            if suggested is None:
                raise
            raise click.UsageError(f"{error.message} Did you mean `barnabas {suggested}`?", ctx) from None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands by section, without importing one of them."""
        for title, commands in COMMANDS.items():
            with formatter.section(title):
                formatter.write_dl([(name, command.summary) for name, command in commands.items()])
        write_examples(formatter, EXAMPLES)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; what it raises on purpose is told in one line."""
        with errors_in_one_line():
            return super().invoke(ctx)


def _suggest_command(typed: str, commands: list[str]) -> str | None:
    """The command that stands behind a script of Kafka's, with `kafka-` and `.sh` or without, or the nearest one."""
    import difflib

    from barnabas.cli.shims.scripts import SCRIPTS

    script = SCRIPTS.get(f"kafka-{typed.removeprefix('kafka-').removesuffix('.sh')}")
    if script is not None:
        return " ".join(script.command)
    return next(iter(difflib.get_close_matches(typed, commands, n=1)), None)


@click.command(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name="barnabas")
def cli() -> None:
    """Barnabas carries messages: a broker that every Kafka client uses, on Kafka's own log format."""


def _open_streams() -> None:
    """Open what the caller has closed of the standard streams, before a file of ours gets its number."""
    from pathlib import Path

    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, Path(os.devnull).open(mode, encoding="utf-8"))  # noqa: SIM115  # open until the end


def main() -> None:
    """Run the program (the entry point of the package)."""
    # kio imports hypothesis where it is installed (0.2 s, and a .hypothesis directory where one stands); no command
    # has a use for it, so in this process it is not there.
    sys.modules["hypothesis"] = None  # type: ignore[assignment]  # the documented way to block an import
    _open_streams()
    cli(prog_name="barnabas")


if __name__ == "__main__":
    main()
