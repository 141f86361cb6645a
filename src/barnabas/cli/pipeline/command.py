"""`barnabas pipeline`: pipelines as files. `init` and `check` and `status` start no Spark; `run` does."""

from __future__ import annotations

import sys
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from barnabas.cli.failures import Failed
from barnabas.cli.help import Command, F, Group, option
from barnabas.cli.output import Style, choose_style, json_option, print_json, print_table, remark
from barnabas.cli.spark_failures import ended_by_signals, in_one_line, verbose_option

if TYPE_CHECKING:
    from collections.abc import Sequence

    from barnabas.pipelines.runner.status import QueryStatus
    from barnabas.pipelines.spec import Pipeline, SpecError

EXAMPLE_FILES: Final = ("pipeline.toml", "customers.csv", "orders.jsonl")
STATUS_COLUMNS: Final = ("QUERY", "LAG", "LAST BATCH", "AT", "SECONDS", "ROWS", "ROWS/S", "STATE ROWS", "STATE BYTES")


def files_argument(command: F) -> F:
    """FILE..., as `files`."""
    return click.argument(
        "files",
        metavar="FILE...",
        nargs=-1,
        required=True,
        type=click.Path(exists=True, dir_okay=False, path_type=Path),
    )(command)


def server_option(command: F) -> F:
    """`--bootstrap-server`, which goes before what files say."""
    return option(
        "--bootstrap-server",
        metavar="HOST:PORT,...",
        help="Another cluster than the one that the files name.",
        section="Connection",
        shared=True,
    )(command)


@click.group(
    cls=Group,
    examples=[
        ("an example to begin with", "barnabas pipeline init"),
        ("is anything wrong with it?", "barnabas pipeline check pipeline.toml"),
        ("take in what is there, and end", "barnabas pipeline run pipeline.toml --available-now"),
        ("how far is it?", "barnabas pipeline status pipeline.toml"),
    ],
)
@server_option
def command(bootstrap_server: str | None) -> None:
    """Run pipelines on Spark that are written in files: topics in, SQL or Python between, tables and topics out."""


@command.command(
    cls=Command,
    short_help="Write an example that runs.",
    examples=[("here", "barnabas pipeline init"), ("in a folder of its own", "barnabas pipeline init orders")],
)
@click.argument("folder", default=".", type=click.Path(file_okay=False, path_type=Path))
def init(folder: Path) -> None:
    """Write an example into FOLDER: a pipeline, a table of customers, and some orders. No file is overwritten."""
    for path in write_example(folder):
        click.echo(path)
    remark("With a broker on localhost:9092 (`barnabas start`), the first lines of pipeline.toml say what to type.")


def write_example(folder: Path) -> list[Path]:
    """Write the example's files. Raises Failed if one of them is there."""
    paths = [folder / name for name in EXAMPLE_FILES]
    for path in paths:
        if path.exists():
            raise Failed(f"{path} is there already. Name another folder: barnabas pipeline init FOLDER.")
    folder.mkdir(parents=True, exist_ok=True)
    for path in paths:
        path.write_bytes(resources.files("barnabas.cli.pipeline").joinpath("example", path.name).read_bytes())
    return paths


@command.command(
    cls=Command,
    short_help="Find what is wrong, without running anything.",
    examples=[
        ("in a moment, without Spark", "barnabas pipeline check pipeline.toml"),
        ("with columns and types, as Spark sees them", "barnabas pipeline check --spark pipeline.toml"),
        ("those that run together share no table?", "barnabas pipeline check pipelines/*.toml"),
    ],
)
@files_argument
@option("--spark", is_flag=True, help="Start Spark too, and let it look at every query.", section="What")
@json_option
def check(files: tuple[Path, ...], spark: bool, as_json: bool) -> None:
    """Find what is wrong with pipelines, with the line that it is on. No broker is asked.

    Without --spark no Spark is started: SQL is looked at for the views that it reads, open brackets and state.
    """
    from barnabas.pipelines.spec import SpecError, load_pipelines

    try:
        pipelines = load_pipelines(files)
        columns = analysed(pipelines) if spark else {}
    except SpecError as error:
        show_problems(error, as_json=as_json)
        raise SystemExit(1) from error
    show_sinks(pipelines, columns, as_json=as_json)


def analysed(pipelines: Sequence[Pipeline]) -> dict[str, str]:
    """What Spark says about every sink: its columns."""
    from barnabas.clients.library import load

    load("pyspark", "spark")
    from barnabas.pipelines.runner.analysis import analyse

    with in_one_line("Without --spark, no Spark is needed."):
        return analyse(pipelines)


def show_problems(error: SpecError, *, as_json: bool) -> None:
    """One line each; they are the result."""
    if as_json:
        print_json(
            {
                "problems": [
                    {"file": str(each.place.file), "line": each.place.line, "text": each.text}
                    for each in error.problems
                ]
            }
        )
        return
    for each in error.problems:
        click.echo(each)


def show_sinks(pipelines: Sequence[Pipeline], columns: dict[str, str], *, as_json: bool) -> None:
    """What would run."""
    from barnabas.pipelines.spec.flows import flow_to

    found = []
    for pipeline in pipelines:
        for sink in pipeline.sinks:
            query = pipeline.query(sink)
            flow = flow_to(pipeline, sink)
            found.append(
                {
                    "query": query,
                    "reads": [source.name for source in flow.sources],
                    "writes": pipeline.target(sink),
                    "kept": "by offsets" if flow.by_offsets else f"by batches, because {flow.keeps_state}",
                    **({"columns": columns[query]} if columns else {}),
                }
            )
    match choose_style(as_json=as_json):
        case Style.JSON:
            print_json({"problems": [], "queries": found})
        case Style.PLAIN:
            for each in found:
                click.echo("\t".join(_text(value) for value in each.values()))
        case Style.TABLE:
            print_table(
                [name.upper() for name in found[0]], [[_text(value) for value in row.values()] for row in found]
            )


def _text(value: object) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


@command.command(
    cls=Command,
    short_help="Run pipelines.",
    examples=[
        ("until it is stopped", "barnabas pipeline run pipeline.toml"),
        ("take in what is there, and end", "barnabas pipeline run pipeline.toml --available-now"),
        ("several in one Spark application", "barnabas pipeline run pipelines/*.toml"),
        (
            "on a Spark cluster",
            "barnabas pipeline run pipeline.toml --master spark://spark1:7077 --conf spark.executor.memory=4g",
        ),
    ],
)
@files_argument
@option("--available-now", is_flag=True, help="Take in what is there now, and end.", section="When")
@option("--every", metavar="TIME", help="Make a batch so often, as 30s or 500ms.", section="When")
@option("--master", default="local[*,3]", show_default=True, help="Where Spark runs.", section="Spark")
@option("--conf", metavar="KEY=VALUE", multiple=True, help="A setting of Spark. Repeatable.", section="Spark")
@verbose_option
@server_option
def run(
    files: tuple[Path, ...],
    available_now: bool,
    every: str | None,
    master: str,
    conf: tuple[str, ...],
    verbose: bool,
    bootstrap_server: str | None,
) -> None:
    """Run the pipelines of files, all in one Spark application.

    Ctrl-C or SIGTERM stops them between batches, a second Ctrl-C at once. A query that fails for a reason that passes
    is started again.
    """
    import logging

    from barnabas.cli.start import LOG_FORMAT
    from barnabas.clients.library import load
    from barnabas.pipelines.spec import load_pipelines
    from barnabas.pipelines.spec.model import with_changes

    trigger, settings = chosen_trigger(every, available_now=available_now), dict(map(_pair, conf))
    pipelines = [
        with_changes(each, trigger=trigger, bootstrap_server=bootstrap_server) for each in load_pipelines(files)
    ]
    load("pyspark", "spark")
    from barnabas.pipelines.runner.running import run_pipelines

    logging.basicConfig(level=logging.WARNING, format=LOG_FORMAT, stream=sys.stderr)
    logging.getLogger("barnabas").setLevel(logging.INFO)  # and not py4j, which tells of every call that fails
    with (
        ended_by_signals("Interrupted: the same run goes on from the last batch of every sink."),
        in_one_line("Every sink is as its last batch left it: start the run again."),
    ):
        run_pipelines(pipelines, master=master, config=settings, by_signals=True, verbose=verbose)


def chosen_trigger(every: str | None, *, available_now: bool) -> str | None:
    """The trigger that options ask for; None if they leave it to the files."""
    from barnabas.pipelines.spec.durations import milliseconds
    from barnabas.pipelines.spec.model import AVAILABLE_NOW

    if available_now and every is not None:
        raise click.UsageError("Give --available-now or --every, not both.")
    if every is not None:
        try:
            milliseconds(every)
        except ValueError as error:
            raise click.UsageError(f"--every: {error}.") from error
    return AVAILABLE_NOW if available_now else every


def _pair(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise click.UsageError(f"--conf {text} is not of the form KEY=VALUE.")
    return name.strip(), value.strip()


@command.command(
    cls=Command,
    short_help="Show how far pipelines are.",
    examples=[
        ("lag and last batch of every query", "barnabas pipeline status pipeline.toml"),
        ("the same group in a tool of Kafka", "barnabas groups --describe --group orders.revenue"),
    ],
)
@files_argument
@server_option
@json_option
def status(files: tuple[Path, ...], bootstrap_server: str | None, as_json: bool) -> None:
    """Show the lag of every query, from its consumer group, and its last batch, from the topic of metrics.

    It asks the broker only, so it works from anywhere and while nothing runs.
    """
    from barnabas.pipelines.runner.status import statuses
    from barnabas.pipelines.spec import load_pipelines
    from barnabas.pipelines.spec.model import with_changes

    pipelines = [with_changes(each, bootstrap_server=bootstrap_server) for each in load_pipelines(files)]
    show_status([each for pipeline in pipelines for each in statuses(pipeline)], as_json=as_json)


def show_status(found: Sequence[QueryStatus], *, as_json: bool) -> None:
    """A line per query."""
    from dataclasses import asdict

    rows = [_status_row(each) for each in found]
    match choose_style(as_json=as_json):
        case Style.JSON:
            print_json([asdict(each) for each in found])
        case Style.PLAIN:
            for row in rows:
                click.echo("\t".join(map(str, row)))
        case Style.TABLE:
            print_table(STATUS_COLUMNS, rows)


def _status_row(found: QueryStatus) -> list[Any]:
    last = found.last
    lag: object = "-" if found.lag is None else found.lag
    if last is None:
        return [found.query, lag, *["-"] * 7]
    return [
        found.query,
        lag,
        last.batch,
        last.at,
        last.seconds,
        last.rows,
        last.rows_per_second,
        last.state_rows,
        last.state_bytes,
    ]
