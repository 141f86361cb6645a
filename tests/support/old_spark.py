"""An older Spark beside the newest one: Spark's own Kafka connector is not released for every version."""

from __future__ import annotations

import fcntl
import functools
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING, Final

from tests.support.jars import CACHE

if TYPE_CHECKING:
    from pathlib import Path

VERSION: Final = "4.0.0"


@functools.cache
def python() -> Path:
    """A Python that has this version of PySpark, made if need be."""
    folder = CACHE / f"pyspark-{VERSION}"
    found = folder / "bin" / "python"
    stamp = folder / ".complete"
    CACHE.mkdir(exist_ok=True)
    with (CACHE / f"pyspark-{VERSION}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not stamp.exists():
            shutil.rmtree(folder, ignore_errors=True)
            subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
            subprocess.run([str(found), "-m", "pip", "install", "--quiet", f"pyspark=={VERSION}"], check=True)
            stamp.touch()
    return found
