"""An older Spark beside the newest one, in an environment of its own: the oldest that the source reads topics with.

`python -m tests.support.old_spark` makes it ahead of the tests, whose time limits are not made for downloads. It has
what `barnabas[spark]` asks for, but not Barnabas itself, which is found by the path of `environment`.
"""

from __future__ import annotations

import fcntl
import functools
import hashlib
import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Final

from tests.support.jars import CACHE

VERSION: Final = "4.0.0"
ROOT: Final = Path(__file__).parents[2]


@functools.cache
def python() -> Path:
    """A Python that has this version of PySpark, made if need be."""
    wanted = requirements()
    name = f"pyspark-{VERSION}-{hashlib.sha256(' '.join(wanted).encode()).hexdigest()[:8]}"
    folder = CACHE / name
    found = folder / "bin" / "python"
    stamp = folder / ".complete"
    CACHE.mkdir(exist_ok=True)
    with (CACHE / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not stamp.exists():
            shutil.rmtree(folder, ignore_errors=True)
            subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
            pip = [sys.executable, "-m", "pip", "--python", str(found), "install", "--quiet"]
            subprocess.run([*pip, *wanted], check=True)
            stamp.touch()
    return found


def environment() -> dict[str, str]:
    """Variables for what runs there: this checkout's sources are on the path."""
    return {**os.environ, "PYTHONPATH": str(ROOT / "src")}


def requirements() -> list[str]:
    """What Barnabas needs to run on this Spark, by its own account."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    needed = [*project["dependencies"], *extras["clients"], *extras["spark"]]
    return [f"pyspark=={VERSION}", *(each for each in needed if not each.startswith("barnabas"))]


if __name__ == "__main__":
    print(python())
