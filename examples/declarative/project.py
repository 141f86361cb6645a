"""A copy of the project in a folder of its own, and how Spark runs it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

import pyspark

HERE: Final = Path(__file__).parent
SPEC: Final = "spark-pipeline.yml"
HIVE: Final = "spark.sql.catalogImplementation=hive"
"""A catalog on disk, so that the next run knows the tables; Spark's own is gone with the process."""


def copy(folder: Path, servers: str) -> None:
    """The project with its storage below the folder, for this broker."""
    shutil.copytree(HERE / "transformations", folder / "transformations")
    shutil.copy(HERE / "pyspark_barnabas.py", folder)
    text = (HERE / SPEC).read_text(encoding="utf-8")
    text = text.replace("file:///tmp/orders-pipeline", (folder / "storage").absolute().as_uri())
    (folder / SPEC).write_text(text.replace("localhost:9092", servers), encoding="utf-8")


def run(folder: Path, *flags: str) -> None:
    """`spark-pipelines run`, as one would type it in the folder; the tables are in `spark-warehouse` then."""
    command = Path(pyspark.__file__).parent / "bin" / "spark-pipelines"
    python = {"PYSPARK_PYTHON": sys.executable, "PYTHONPATH": str(folder.absolute())}
    subprocess.run([command, "run", "--conf", HIVE, *flags], cwd=folder, env={**os.environ, **python}, check=True)
