"""An older Spark beside the newest one, in an environment of its own: the oldest that the source reads topics with.

`python -m tests.support.old_spark` makes it ahead of the tests, whose time limits are not made for downloads. It has
what `barnabas[spark]` asks for, but not Barnabas itself, which is found by the path of `environment`.

Its own Kafka connector it gets as everybody's does, by `spark.jars.packages`. The folder in which Ivy, which does that
for Spark, keeps what it has fetched lies in the environment, and is filled ahead: so a test needs no network.
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

from tests.support.jars import CACHE, download, program

VERSION: Final = "4.0.0"
ROOT: Final = Path(__file__).parents[2]
CONNECTOR: Final = ("org.apache.spark", "spark-sql-kafka-0-10_2.13", VERSION)
IVY_SETTINGS: Final = """\
<ivysettings>
  <settings defaultResolver="central"/>
  <resolvers>
    <ibiblio name="central" m2compatible="true" root="https://repo.maven.apache.org/maven2/"/>
  </resolvers>
</ivysettings>
"""
"""Where Ivy looks. Left to itself, it looks into Maven's own folder first, and fails where that has half a package."""


@functools.cache
def python() -> Path:
    """A Python that has this version of PySpark, made if need be."""
    wanted = requirements()
    content = " ".join([*wanted, *CONNECTOR, IVY_SETTINGS])
    name = f"pyspark-{VERSION}-{hashlib.sha256(content.encode()).hexdigest()[:8]}"
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
            _fetch_connector(folder)
            stamp.touch()
    return found


def connector() -> dict[str, str]:
    """Settings by which Spark gets its own Kafka connector."""
    folder = python().parents[1]
    return {
        "spark.jars.packages": ":".join(CONNECTOR),
        "spark.jars.ivy": str(_ivy(folder)),
        "spark.jars.ivySettings": str(_ivy_settings(folder)),
    }


def _fetch_connector(folder: Path) -> None:
    """Let Ivy itself fetch the connector and what it needs, by the settings that Spark will give it."""
    _ivy(folder).mkdir()
    _ivy_settings(folder).write_text(IVY_SETTINGS)
    (ivy,) = folder.glob("lib/python*/site-packages/pyspark/jars/ivy-*.jar")
    place = ["-settings", str(_ivy_settings(folder)), "-cache", str(_ivy(folder) / "cache")]
    download([program("java"), "-jar", str(ivy), *place, "-confs", "default", "-dependency", *CONNECTOR], CONNECTOR[1])


def _ivy(folder: Path) -> Path:
    return folder / "ivy"


def _ivy_settings(folder: Path) -> Path:
    return _ivy(folder) / "settings.xml"


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
