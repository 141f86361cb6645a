"""How views hang together, and what each sink needs to write every row once. Pure.

A sink is *kept by offsets* when each of its rows comes from one record of a topic: what it holds is then said by the
offsets alone, and a lost checkpoint costs nothing. Otherwise (windows, joined streams, a topic that is read twice) rows
depend on what came before, which only Spark's checkpoint knows, and the sink is *kept by batches*.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from graphlib import TopologicalSorter
from typing import TYPE_CHECKING

from barnabas.pipelines.spark.read.selection import Selection
from barnabas.pipelines.spec.model import (
    BAD,
    MAY_FAIL,
    FunctionStep,
    Pipeline,
    Sink,
    Source,
    SqlStep,
    Step,
    TopicSource,
)
from barnabas.pipelines.spec.sql import SqlProblem, examine

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence


@dataclass(frozen=True, slots=True)
class Flow:
    """What leads to one sink."""

    steps: tuple[Step, ...]
    """In an order in which every view is made before it is read."""
    sources: tuple[Source, ...]
    keeps_state: str | None
    """Why rows depend on what came before, as the end of a sentence; None if they do not."""
    grouping: tuple[Step, ...] = ()
    """The steps that aggregate a stream in SQL."""

    @property
    def topics(self) -> list[TopicSource]:
        """The sources that are streams."""
        return [source for source in self.sources if isinstance(source, TopicSource)]

    @property
    def by_offsets(self) -> bool:
        """Whether offsets alone say what the sink holds."""
        return self.keeps_state is None


def keeps_bad_records(pipeline: Pipeline, sink: Sink) -> bool:
    """Whether a sink has what a source could not decode, and nothing else."""
    bad = {
        f"{each.name}{BAD}".lower()
        for each in pipeline.sources
        if isinstance(each, TopicSource) and each.decode in MAY_FAIL
    }
    return sink.reads.lower() in bad


def views_read(step: Step) -> Sequence[str]:
    """The views that a step reads, as they are written, each as often as it is read; none that only Spark finds."""
    if isinstance(step, FunctionStep):
        return step.reads
    found = views_found(step)
    if step.reads is None:
        return found
    times = Counter(map(str.lower, step.reads)) | Counter(map(str.lower, found))
    return [view for view in dict.fromkeys(step.reads) for _ in range(times[view.lower()])]


def views_found(step: SqlStep) -> Sequence[str]:
    """What the words of a step's query say that it reads; nothing if they cannot be understood."""
    try:
        return examine(step.sql).reads
    except SqlProblem:
        return ()


def views_made(pipeline: Pipeline) -> dict[str, Source | Step]:
    """Who makes each view, by its name in small letters: that is how Spark compares them."""
    return {view.lower(): each for each in (*pipeline.sources, *pipeline.steps) for view in views_of(each)}


def views_of(element: Source | Step) -> list[str]:
    """The views that a source or a step makes."""
    has_bad = isinstance(element, TopicSource) and element.decode in MAY_FAIL
    return [element.name, f"{element.name}{BAD}"] if has_bad else [element.name]


def views_written(pipeline: Pipeline) -> set[str]:
    """The views that lead to any sink, in small letters."""
    steps = {step.name.lower(): step for step in pipeline.steps}
    found: set[str] = set()
    waiting = [sink.reads.lower() for sink in pipeline.sinks]
    while waiting:
        view = waiting.pop()
        if view not in found:
            found.add(view)
            waiting += [each.lower() for each in views_read(steps[view])] if view in steps else []
    return found


def selection_of(source: TopicSource) -> Selection:
    """What a source reads."""
    return Selection(
        topics=tuple(source.topics), pattern=None if source.pattern is None else re.compile(source.pattern)
    )


def in_order_of_reads(steps: Iterable[Step]) -> list[Step]:
    """Steps in an order in which they can be made. Raises graphlib.CycleError."""
    by_name = {step.name.lower(): step for step in steps}
    sorter = TopologicalSorter({name: [each.lower() for each in views_read(step)] for name, step in by_name.items()})
    return [by_name[name] for name in sorter.static_order() if name in by_name]


def flow_to(pipeline: Pipeline, sink: Sink) -> Flow:
    """What leads to a sink, in a pipeline without cycles and unknown views."""
    made = views_made(pipeline)
    upstream = _upstream(sink.reads, made)
    steps = in_order_of_reads(each for each in upstream if isinstance(each, Step))
    sources = [each for each in upstream if isinstance(each, Source)]
    remembering = {step.name: words for step in steps if (words := _remembers(step, made))}
    reasons = [f'step "{name}" {words}' for name, words in remembering.items()]
    reasons += [f"{twice} is read more than once" for twice in _read_twice(sources)]
    return Flow(
        tuple(steps),
        tuple({each.name: each for each in sources}.values()),
        reasons[0] if reasons else None,
        tuple(step for step in steps if remembering.get(step.name) == "has GROUP BY"),
    )


def _upstream(view: str, made: Mapping[str, Source | Step]) -> list[Source | Step]:
    """What leads to a view, each as often as it is read."""
    maker = made[view.lower()]
    if isinstance(maker, Source):
        return [maker]
    return [maker, *(more for each in views_read(maker) for more in _upstream(each, made))]


def _remembers(step: Step, made: Mapping[str, Source | Step]) -> str | None:
    """What a step does that needs memory of a stream, as the end of a sentence."""
    streams = [
        view for view in views_read(step) if any(isinstance(each, TopicSource) for each in _upstream(view, made))
    ]
    if not streams:
        return None
    if isinstance(step, FunctionStep):
        return None if step.stateless else "is a function that did not promise to be stateless"
    try:
        query = examine(step.sql)
    except SqlProblem:
        return "has a query that only Spark understands"
    if query.keeps_state is not None:
        return f"has {query.keeps_state}"
    return "joins streams" if query.joins and len(streams) > 1 else None


def _read_twice(sources: Sequence[Source]) -> list[str]:
    streams = [each for each in sources if isinstance(each, TopicSource)]
    times = Counter(topic for stream in streams for topic in stream.topics)
    found = [f'topic "{topic}"' for topic, count in times.items() if count > 1]
    if len(streams) > 1 and any(stream.pattern is not None for stream in streams):
        found.append("a topic that matches a pattern, perhaps,")
    return found
