"""Checks of single values: one of several words, the delay of a watermark."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.pipelines.spec.durations import milliseconds
from barnabas.pipelines.spec.places import Problem, suggestion

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from barnabas.pipelines.spec.model import Step, TopicSource
    from barnabas.pipelines.spec.places import Place


def choice_problems(value: str, known: Sequence[str], key: str, place: Place) -> Iterator[Problem]:
    """A problem unless a key has one of the known values."""
    if value not in known:
        yield Problem(place.at(key), f'{key} is "{value}".{suggestion(value, known)}')


def watermark_problems(element: TopicSource | Step) -> Iterator[Problem]:
    """A problem unless the delay of a watermark is a length of time."""
    if element.watermark is not None:
        try:
            milliseconds(element.watermark.delay)
        except ValueError as error:
            yield Problem(element.place.at("watermark"), f'the watermark of "{element.name}": {error}')
