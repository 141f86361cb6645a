"""Whether the objects of a Python file have what their fields take: nobody else looks. Pure.

A list of texts needs the look most. One text is a sequence of texts too, its letters, so type checkers let it pass.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields
from typing import Any, Final

from barnabas.pipelines.spec.model import Pipeline, Sink, Source, Step, Watermark
from barnabas.pipelines.spec.places import Problem


def _list_of(kind: Any) -> Callable[[object], bool]:
    def is_list(value: object) -> bool:
        return (
            isinstance(value, Sequence) and not isinstance(value, str) and all(isinstance(one, kind) for one in value)
        )

    return is_list


def _are_options(value: object) -> bool:
    return isinstance(value, Mapping) and all(isinstance(each, str) for pair in value.items() for each in pair)


_TAKES: Final[Mapping[str, tuple[Callable[[Any], bool], str]]] = {
    "str": (lambda value: isinstance(value, str), "text"),
    "bool": (lambda value: isinstance(value, bool), "True or False"),
    "int": (lambda value: isinstance(value, int) and not isinstance(value, bool), "a whole number"),
    "Watermark": (lambda value: isinstance(value, Watermark), "a Watermark"),
    "Sequence[str]": (_list_of(str), "a list of texts"),
    "Mapping[str, str]": (_are_options, "a dict of texts"),
    "Sequence[Source]": (_list_of(Source), "a list of sources"),
    "Sequence[Step]": (_list_of(Step), "a list of steps"),
    "Sequence[Sink]": (_list_of(Sink), "a list of sinks"),
}
"""What fields take, by how their types are written, and how to say it."""


def misfits(pipeline: Pipeline) -> list[Problem]:
    """The fields of a pipeline, and of what it is made of, that have something else than they take."""
    own = list(_of_one(pipeline, "the pipeline"))
    if own:
        return own
    elements = (*pipeline.sources, *pipeline.steps, *pipeline.sinks)
    return [problem for each in elements for problem in _of_one(each, f'"{each.name}"')]


def _of_one(element: Pipeline | Source | Step | Sink, what: str) -> Iterator[Problem]:
    for field in fields(element):
        written = str(field.type)
        value = getattr(element, field.name)
        fits, takes = _TAKES.get(written.removesuffix(" | None"), (None, ""))
        if fits is None or fits(value) or (value is None and written.endswith(" | None")):
            continue
        shown = "" if isinstance(value, Mapping) else f", not {value!r}"  # properties may be secret
        yield Problem(element.place, f"{field.name} of {what} takes {takes}{shown}")
