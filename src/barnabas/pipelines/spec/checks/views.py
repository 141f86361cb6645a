"""Checks of how views hang together: names that nobody makes, circles, bad records that nobody keeps."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.pipelines.spec.flows import views_found, views_made, views_read, views_written
from barnabas.pipelines.spec.model import BAD, MAY_FAIL, SqlStep, TopicSource
from barnabas.pipelines.spec.places import Problem, suggestion

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from barnabas.pipelines.spec.model import Pipeline


def unknown_view_problems(pipeline: Pipeline) -> Iterator[Problem]:
    """Views that steps and sinks read and that no source or step makes."""
    made = views_made(pipeline)
    names = [each.name for each in (*pipeline.sources, *pipeline.steps)]
    for step in pipeline.steps:
        key = "sql" if isinstance(step, SqlStep) and step.reads is None else "reads"
        reads = dict.fromkeys(views_read(step))
        for view in reads:
            if view.lower() not in made:
                others = [name for name in names if name != step.name]
                yield Problem(
                    step.place.at(key),
                    f'step "{step.name}" reads "{view}", which nobody makes.{suggestion(view, others)}',
                )
        if isinstance(step, SqlStep):
            yield from _unnamed_view_problems(step, set(map(str.lower, reads)), made)
    for sink in pipeline.sinks:
        if sink.reads.lower() not in made:
            yield Problem(
                sink.place.at("from"),
                f'sink "{sink.name}" writes "{sink.reads}", which nobody makes.{suggestion(sink.reads, names)}',
            )


def _unnamed_view_problems(step: SqlStep, named: set[str], made: Mapping[str, object]) -> Iterator[Problem]:
    """Views that a query reads beside those that `reads` names: what is remembered of them would not be known."""
    for view in dict.fromkeys(views_found(step)):
        if view.lower() in made and view.lower() not in named:
            yield Problem(
                step.place.at("reads"), f'step "{step.name}" reads "{view}", and its `reads` does not name it; add it'
            )


def cycle_problem(names: Sequence[str], pipeline: Pipeline) -> Problem:
    """The problem of steps that read each other in a circle."""
    by_name = {step.name.lower(): step for step in pipeline.steps}
    circle = " → ".join(by_name[name].name for name in reversed(names))
    return Problem(by_name[names[0]].place, f"steps read each other in a circle: {circle}")


def bad_record_problems(pipeline: Pipeline) -> Iterator[Problem]:
    """Whether values that cannot be decoded are kept, or somebody has said that they need not be."""
    written = views_written(pipeline)
    for source in pipeline.sources:
        if not isinstance(source, TopicSource) or source.decode not in MAY_FAIL or source.bad == "drop":
            continue
        bad = f"{source.name}{BAD}"
        if source.name.lower() in written and bad.lower() not in written:
            yield Problem(
                source.place.at("decode"),
                f'values of source "{source.name}" that cannot be decoded would vanish: add a sink with '
                f'from = "{bad}", or say bad = "drop"',
            )
