"""`barnabas pipeline check`: what is wrong with pipelines, without running them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from barnabas.cli.common.help import Command, option
from barnabas.cli.common.options import takes
from barnabas.cli.common.output import Style, choose_style, json_option, print_json, print_tabbed, print_table
from barnabas.cli.common.spark_failures import in_one_line
from barnabas.cli.pipeline.files import FileOptions, files_argument

if TYPE_CHECKING:
    from collections.abc import Sequence

    from barnabas.pipelines.spec import Pipeline, SpecError


@dataclass(frozen=True, kw_only=True)
class Options(FileOptions):
    """The options of `barnabas pipeline check`."""

    spark: bool
    as_json: bool


@click.command(
    cls=Command,
    short_help="Check pipelines without running them.",
    examples=[
        ("check a file without Spark", "barnabas pipeline check pipeline.toml"),
        ("check columns and types, with Spark", "barnabas pipeline check --spark pipeline.toml"),
        ("check that pipelines which run together share no table", "barnabas pipeline check pipelines/*.toml"),
    ],
)
@files_argument
@option("--spark", is_flag=True, help="Also start Spark, and have it analyse every query.", section="What")
@json_option
@takes(Options)
def check(options: Options) -> None:
    """Check pipelines, and show each problem with its file and line. No broker is asked.

    Without --spark, SQL is only checked for the views that it reads, for open brackets, and for state.
    """
    from barnabas.pipelines.spec import SpecError, load_pipelines

    try:
        pipelines = load_pipelines(options.files)
        columns = analysed(pipelines) if options.spark else {}
    except SpecError as error:
        show_problems(error, as_json=options.as_json)
        raise SystemExit(1) from error
    show_sinks(pipelines, columns, as_json=options.as_json)


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
            print_tabbed([_text(value) for value in each.values()] for each in found)
        case Style.TABLE:
            print_table(
                [name.upper() for name in found[0]], [[_text(value) for value in row.values()] for row in found]
            )


def _text(value: object) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)
