"""The Python of Spark's workers on this machine: this one, with the installed PySpark before Spark's copy of it.

Spark puts `pyspark.zip` before all that is installed, for machines that have no PySpark. What comes from a zip, Python
compiles anew whenever it starts: 2.4 seconds instead of 0.5, and 12 MB more, for each of the daemons that Spark has for
each kind of question, and as much memory again in their workers. A zip that lies in the installed package is a copy of
it, and nothing is lost without it.

`barnabas-spark-python` runs this. Spark calls it as it calls Python, `-m MODULE WORD...`; called in any other way, it
hands over to Python.
"""

from __future__ import annotations

import gc
import os
import runpy
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

COMMAND: Final = "barnabas-spark-python"


def worker_python() -> str:
    """What to call as the Python of workers here: the command, or this Python if it is not installed beside it."""
    command = Path(sys.executable).with_name(COMMAND)
    return str(command) if command.exists() else sys.executable


def main() -> None:
    """Run a module of PySpark as `python -m` would."""
    if sys.argv[1:2] != ["-m"]:
        os.execv(sys.executable, [sys.executable, *sys.argv[1:]])
    words = sys.argv[2:]
    sys.path = [str(Path.cwd()), *without_copies(sys.path[1:])]
    import pyspark  # noqa: F401  (all of it, which a daemon hands to its workers)

    # Workers collect garbage after each task, and a page of the daemon's that they look through is copied for them.
    gc.freeze()
    sys.argv = words
    runpy.run_module(words[0], run_name="__main__", alter_sys=True)


def without_copies(path: Iterable[str]) -> list[str]:
    """Where to look for modules, without the zips that lie in the PySpark that would be found without them."""
    entries = list(path)
    for entry in entries:
        home = Path(entry, "pyspark")
        if (home / "__init__.py").is_file():
            zips = (home / "python" / "lib").resolve()
            return [each for each in entries if Path(each).resolve().parent != zips]
    return entries
