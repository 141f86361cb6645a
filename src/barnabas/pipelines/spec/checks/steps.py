"""Checks of steps: SQL that can be parsed, functions that are there and take the views."""

from __future__ import annotations

import ast
import inspect
from typing import TYPE_CHECKING

from barnabas.pipelines.spec.checks.values import watermark_problems
from barnabas.pipelines.spec.model import FunctionStep, SqlStep
from barnabas.pipelines.spec.places import Problem, suggestion
from barnabas.pipelines.spec.sql import SqlProblem, examine

if TYPE_CHECKING:
    from collections.abc import Iterator

    from barnabas.pipelines.spec.model import Pipeline, Step


def step_problems(step: Step, pipeline: Pipeline) -> Iterator[Problem]:
    """What is wrong with a step."""
    yield from watermark_problems(step)
    if isinstance(step, SqlStep):
        yield from _sql_step_problems(step)
    else:
        yield from _function_step_problems(step, pipeline)


def _sql_step_problems(step: SqlStep) -> Iterator[Problem]:
    if step.reads is not None:
        return
    try:
        examine(step.sql)
    except SqlProblem as error:
        yield Problem(step.place.at("sql", error.line), f'step "{step.name}": {error}')


def _function_step_problems(step: FunctionStep, pipeline: Pipeline) -> Iterator[Problem]:
    if not step.reads:
        yield Problem(step.place, f'step "{step.name}" needs `reads`: the views that its function is given')
    if not isinstance(step.function, str):
        try:
            inspect.signature(step.function).bind(*step.reads)
        except TypeError as error:
            yield Problem(
                step.place, f'step "{step.name}": its function does not take {len(step.reads)} views: {error}'
            )
        return
    place = step.place.at("python")
    file, colon, name = step.function.rpartition(":")
    if not colon:
        yield Problem(place, f'"{step.function}" is not of the form file.py:function')
        return
    path = pipeline.folder / file
    if not path.is_file():
        yield Problem(place, f'step "{step.name}" is in {path}, which is not there')
        return
    try:
        tree = ast.parse(path.read_bytes())
    except SyntaxError as error:
        yield Problem(place, f"{path} is no Python: line {error.lineno}: {error.msg}")
        return
    functions = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
    if name not in functions:
        yield Problem(place, f'{path} has no function "{name}".{suggestion(name, functions)}')
        return
    arguments = functions[name].args
    takes = len(arguments.posonlyargs) + len(arguments.args)
    if arguments.vararg is None and not takes - len(arguments.defaults) <= len(step.reads) <= takes:
        yield Problem(place, f"{name} takes {takes} DataFrames, and `reads` names {len(step.reads)} views")
