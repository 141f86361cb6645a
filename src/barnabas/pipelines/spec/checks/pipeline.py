"""Checks pipelines as a whole: their settings and names, then every source, step and sink."""

from __future__ import annotations

import re
from graphlib import CycleError
from typing import TYPE_CHECKING, Final

from barnabas.pipelines.spark.read.selection import can_name_a_topic
from barnabas.pipelines.spec.checks.sinks import exactly_once_problems, shared_place_problems, sink_problems
from barnabas.pipelines.spec.checks.sources import source_problems
from barnabas.pipelines.spec.checks.steps import step_problems
from barnabas.pipelines.spec.checks.views import bad_record_problems, cycle_problem, unknown_view_problems
from barnabas.pipelines.spec.durations import milliseconds
from barnabas.pipelines.spec.flows import in_order_of_reads, views_of
from barnabas.pipelines.spec.kafka_properties import property_problems
from barnabas.pipelines.spec.model import AVAILABLE_NOW
from barnabas.pipelines.spec.places import Problem

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from barnabas.pipelines.spec.model import Pipeline, Source, Step
    from barnabas.pipelines.spec.places import Place

_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_PIPELINE_NAME: Final = re.compile(r"[A-Za-z0-9._-]+")


def problems_of(pipelines: Sequence[Pipeline]) -> list[Problem]:
    """Everything that is wrong with pipelines that are to run together."""
    found = [problem for pipeline in pipelines for problem in _pipeline_problems(pipeline)]
    found += _named_twice([(f'pipeline "{each.name}"', each.name, each.place) for each in pipelines])
    return found + list(shared_place_problems(pipelines))


def _pipeline_problems(pipeline: Pipeline) -> Iterator[Problem]:
    yield from _setting_problems(pipeline)
    yield from _name_problems(pipeline)
    for source in pipeline.sources:
        yield from source_problems(source, pipeline)
    for step in pipeline.steps:
        yield from step_problems(step, pipeline)
    for sink in pipeline.sinks:
        yield from sink_problems(sink, pipeline)
    unknown = list(unknown_view_problems(pipeline))
    yield from unknown
    try:
        in_order_of_reads(pipeline.steps)
    except CycleError as error:
        yield cycle_problem(error.args[1], pipeline)
        return
    if not unknown:
        yield from bad_record_problems(pipeline)
        for sink in pipeline.sinks:
            yield from exactly_once_problems(sink, pipeline)


def _setting_problems(pipeline: Pipeline) -> Iterator[Problem]:
    place = pipeline.place
    if not _PIPELINE_NAME.fullmatch(pipeline.name):
        yield Problem(place.at("name"), f'the name "{pipeline.name}" may have letters, digits, dots, - and _ only')
    if "bootstrap.servers" not in pipeline.kafka:
        yield Problem(
            place.at("kafka"), 'the broker is not named: add `"bootstrap.servers" = "localhost:9092"` to [kafka]'
        )
    for problem in property_problems(pipeline.kafka):
        yield Problem(place.at("kafka"), problem)
    if pipeline.trigger != AVAILABLE_NOW:
        try:
            milliseconds(pipeline.trigger)
        except ValueError as error:
            yield Problem(place.at("trigger"), f'the trigger is a length of time or "{AVAILABLE_NOW}": {error}')
    if pipeline.metrics and not can_name_a_topic(pipeline.metrics):
        yield Problem(place.at("metrics"), f'"{pipeline.metrics}" cannot be the name of a topic')
    if not pipeline.sources:
        yield Problem(place, "there is no source; add one, as [sources.orders]")
    if not pipeline.sinks:
        yield Problem(place, "there is no sink, so nothing would run; add one, as [sinks.orders]")


def _name_problems(pipeline: Pipeline) -> Iterator[Problem]:
    views: list[Source | Step] = [*pipeline.sources, *pipeline.steps]
    for each in (*views, *pipeline.sinks):
        if not _NAME.fullmatch(each.name):
            yield Problem(each.place, f'the name "{each.name}" may have letters, digits and _ only')
    named = [(name, each.place) for each in views for name in views_of(each)]
    yield from _named_twice([(f'view "{name}"', name.lower(), place) for name, place in named])
    yield from _named_twice([(f'sink "{each.name}"', each.name.lower(), each.place) for each in pipeline.sinks])


def _named_twice(named: Sequence[tuple[str, str, Place]]) -> Iterator[Problem]:
    first: dict[str, Place] = {}
    for what, name, place in named:
        if name in first:
            yield Problem(place, f"{what} is also made at {first[name]}; rename one of them")
        first.setdefault(name, place)
