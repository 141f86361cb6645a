"""`barnabas pipeline run`."""

from __future__ import annotations

import sys
from dataclasses import dataclass

import click

from barnabas.cli.common.combinations import at_most_one
from barnabas.cli.common.help import Command, option
from barnabas.cli.common.log_format import LOG_FORMAT
from barnabas.cli.common.options import takes
from barnabas.cli.common.spark_failures import ended_by_signals, in_one_line, verbose_option
from barnabas.cli.common.values.pairs import parse_pairs
from barnabas.cli.pipeline.files import FileOptions, ServerOptions, files_argument, server_options


@dataclass(frozen=True, kw_only=True)
class Options(FileOptions, ServerOptions):
    """The options of `barnabas pipeline run`."""

    available_now: bool
    every: str | None
    master: str
    conf: tuple[str, ...]
    verbose: bool

    def check(self) -> None:
        """Refuse two triggers, and one that is no length of time."""
        from barnabas.pipelines.spec.durations import milliseconds

        at_most_one(self, "available_now", "every")
        if self.every is not None:
            try:
                milliseconds(self.every)
            except ValueError as error:
                raise click.UsageError(f"--every: {error}.") from error

    @property
    def trigger(self) -> str | None:
        """The trigger that options ask for; None if they leave it to the files."""
        from barnabas.pipelines.spec.model import AVAILABLE_NOW

        return AVAILABLE_NOW if self.available_now else self.every

    @property
    def settings(self) -> dict[str, str]:
        """The settings of Spark."""
        return {name: value.strip() for name, value in parse_pairs(self.conf, "--conf", "KEY=VALUE").items()}


@click.command(
    cls=Command,
    short_help="Run pipelines.",
    examples=[
        ("run until Ctrl-C", "barnabas pipeline run pipeline.toml"),
        ("process the records that are there, and end", "barnabas pipeline run pipeline.toml --available-now"),
        ("run several pipelines in one Spark application", "barnabas pipeline run pipelines/*.toml"),
        (
            "run on a Spark cluster",
            "barnabas pipeline run pipeline.toml --master spark://spark1:7077 --conf spark.executor.memory=4g",
        ),
    ],
)
@files_argument
@option("--available-now", is_flag=True, help="Process the records that are there now, and end.", section="When")
@option("--every", metavar="TIME", help="Start a batch at this interval, such as 30s or 500ms.", section="When")
@option(
    "--master",
    default="local[*,3]",
    show_default=True,
    metavar="URL",
    help="The address of Spark's master.",
    section="Spark",
)
@option("--conf", metavar="KEY=VALUE", multiple=True, help="A setting of Spark; repeatable.", section="Spark")
@verbose_option
@server_options
@takes(Options)
def run(options: Options) -> None:
    """Run the pipelines of all files in one Spark application.

    Ctrl-C or SIGTERM stops them between two batches, a second Ctrl-C at once. A query that fails for a temporary reason
    is started again.
    """
    import logging

    from barnabas.clients.library import load
    from barnabas.pipelines.spec import load_pipelines
    from barnabas.pipelines.spec.model import with_changes

    settings = options.settings
    pipelines = [
        with_changes(options.at_cluster(each), trigger=options.trigger) for each in load_pipelines(options.files)
    ]
    load("pyspark", "spark")
    from barnabas.pipelines.runner.running import run_pipelines

    logging.basicConfig(level=logging.WARNING, format=LOG_FORMAT, stream=sys.stderr)
    logging.getLogger("barnabas").setLevel(logging.INFO)  # and not py4j, which tells of every call that fails
    with (
        ended_by_signals("Interrupted: the same run goes on from the last batch of every sink."),
        in_one_line("Every sink is as its last batch left it: start the run again."),
    ):
        run_pipelines(pipelines, master=options.master, config=settings, by_signals=True, verbose=options.verbose)
