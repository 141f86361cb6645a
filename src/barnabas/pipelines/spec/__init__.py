"""Pipelines as files: what is written in them, and what is wrong with it, before Spark starts.

pipelines = load_pipelines([Path("orders.toml")])      # raises SpecError with everything that is wrong
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.pipelines.spec.checks.pipeline import problems_of
from barnabas.pipelines.spec.model import (
    FileSource,
    FunctionStep,
    Pipeline,
    Sink,
    Source,
    SqlStep,
    Step,
    TableSink,
    TopicSink,
    TopicSource,
    Watermark,
)
from barnabas.pipelines.spec.places import Place, Problem, SpecError
from barnabas.pipelines.spec.python_file import read_python
from barnabas.pipelines.spec.toml_file import read_toml

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

__all__ = [
    "FileSource",
    "FunctionStep",
    "Pipeline",
    "Place",
    "Problem",
    "Sink",
    "Source",
    "SpecError",
    "SqlStep",
    "Step",
    "TableSink",
    "TopicSink",
    "TopicSource",
    "Watermark",
    "load_pipelines",
]


def load_pipelines(paths: Sequence[Path]) -> list[Pipeline]:
    """The pipelines of files that are to run together. Raises SpecError with everything that is wrong."""
    pipelines: list[Pipeline] = []
    problems: list[Problem] = []
    for path in paths:
        try:
            pipelines += _read(path)
        except SpecError as error:
            problems += error.problems
    problems += problems_of(pipelines)
    if problems:
        raise SpecError(problems)
    return pipelines


def _read(path: Path) -> list[Pipeline]:
    if path.suffix == ".py":
        return read_python(path)
    if path.suffix == ".toml":
        return [read_toml(path)]
    raise SpecError([Problem(Place(path, 1), "a pipeline is a .toml or a .py file")])
