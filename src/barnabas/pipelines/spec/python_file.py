"""A Python file as pipelines: whatever its top level holds of them. The file is run; Spark is not started."""

from __future__ import annotations

import importlib.util
import sys
import traceback
from typing import TYPE_CHECKING

from barnabas.pipelines.spec.model import Pipeline
from barnabas.pipelines.spec.places import Place, Problem, SpecError
from barnabas.pipelines.spec.python_types import misfits

if TYPE_CHECKING:
    from pathlib import Path
    from types import ModuleType


def load_module(path: Path) -> ModuleType:
    """Run a Python file as a module of its own. Raises SpecError if it fails, with the line that did."""
    name = f"barnabas_pipeline_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except SyntaxError as error:
        raise SpecError([Problem(Place(path, error.lineno or 1), f"this is no Python: {error.msg}")]) from error
    except (Exception, SystemExit) as error:
        file = str(path.absolute())
        lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == file]
        place = Place(path, (lines[-1] if lines else None) or 1)
        raise SpecError([Problem(place, f"{type(error).__name__}: {error}")]) from error
    return module


def read_python(path: Path) -> list[Pipeline]:
    """The pipelines of a Python file. Raises SpecError."""
    found = [value for value in vars(load_module(path)).values() if isinstance(value, Pipeline)]
    pipelines = list({id(each): each for each in found}.values())
    if not pipelines:
        raise SpecError(
            [Problem(Place(path, 1), "no pipeline is made here; assign one, as `pipeline = Pipeline(...)`")]
        )
    if problems := [problem for each in pipelines for problem in misfits(each)]:
        raise SpecError(problems)
    return pipelines
