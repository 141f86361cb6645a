"""The Python of Spark's workers: PySpark as it is installed, and otherwise as Python would do it."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING

import pyspark

from barnabas.pipelines.spark.worker_python import COMMAND, main, without_copies, worker_python

if TYPE_CHECKING:
    import pytest

HOME = Path(pyspark.__file__).parent
ZIPS = sorted(map(str, (HOME / "python" / "lib").glob("*.zip")))
COMMANDED = "from barnabas.pipelines.spark.worker_python import main; main()"
PROBE = """
import gc, sys, pyspark
print(pyspark.__file__, gc.get_freeze_count() > 0, sys.argv[1:], __name__)
"""


def called(folder: Path, *words: str) -> str:
    """What the command says that is called so in a folder, with the path that Spark gives to Python."""
    paths = os.pathsep.join([*ZIPS, os.environ.get("PYTHONPATH", "")])
    return subprocess.run(
        [sys.executable, "-c", COMMANDED, *words],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": paths},
        capture_output=True,
        text=True,
        check=True,
    ).stdout.strip()


def test_a_module_runs_with_the_installed_pyspark_and_finds_what_is_in_its_folder(tmp_path: Path) -> None:
    assert any(path.endswith("pyspark.zip") for path in ZIPS)
    (tmp_path / "probe.py").write_text(PROBE)
    assert called(tmp_path, "-m", "probe", "pyspark.worker") == f"{pyspark.__file__} True ['pyspark.worker'] __main__"


def test_anything_else_is_left_to_python(tmp_path: Path) -> None:
    assert called(tmp_path, "-c", "import sys; print(sys.argv)", "x") == "['-c', 'x']"


def test_only_copies_of_the_pyspark_that_comes_next_are_left_out(tmp_path: Path) -> None:
    installed, other = str(HOME.parent), tmp_path / "other"
    (other / "pyspark").mkdir(parents=True)
    (other / "pyspark" / "__init__.py").touch()
    assert without_copies(["a", *ZIPS, installed]) == ["a", installed]
    assert without_copies([*ZIPS, str(other), installed]) == [*ZIPS, str(other), installed]
    assert without_copies([*ZIPS, "a"]) == [*ZIPS, "a"]


def test_without_the_command_workers_have_the_python_of_the_driver(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    python = str(tmp_path / "python")
    monkeypatch.setattr(sys, "executable", python)
    assert worker_python() == python
    (tmp_path / COMMAND).touch()
    assert worker_python() == str(tmp_path / COMMAND)


def test_the_package_installs_the_command() -> None:
    project = tomllib.loads((Path(__file__).parents[4] / "pyproject.toml").read_text())["project"]
    assert project["scripts"][COMMAND] == f"{main.__module__}:{main.__name__}"
