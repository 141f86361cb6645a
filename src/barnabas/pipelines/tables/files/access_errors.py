"""Why files at an address cannot be reached, in one line, and what to do where a library needs more than pip brings.

deltalake speaks to HDFS by itself. pyiceberg does so through pyarrow, and that through libhdfs: a C library that starts
a JVM in this process, and that no Python package has.
"""

from __future__ import annotations

import os
import re
from typing import Final

from barnabas.pipelines.tables.errors import TableUnreachable, UnusableTarget

ADVICE: Final = {
    re.compile(r"libhdfs|libjvm|HDFS connection failed"): (
        "pyiceberg reaches HDFS by libhdfs.so, which comes with Hadoop: set HADOOP_HOME to a Hadoop distribution (or "
        "ARROW_LIBHDFS_DIR to the folder of libhdfs.so), JAVA_HOME, and CLASSPATH to what `hadoop classpath --glob` "
        "prints, here and on the machines of a cluster. The format delta needs none of them"
    ),
    re.compile(r"No NameNode hosts found"): (
        "What is no HOST:PORT has to be a name service in hdfs-site.xml: set HADOOP_CONF_DIR to the folder of that "
        "file, here and on the machines of a cluster"
    ),
}
CAUSED_BY: Final = re.compile(r"\s*(\x1b\[\d+m)?↳(\x1b\[0m)?\s*")
"""How deltalake begins a line that says why the line before it happened: in red."""


def spare_signals() -> None:
    """Have a JVM that libhdfs starts leave signals to Python: else Ctrl-C would end the process in a commit."""
    options = os.environ.get("LIBHDFS_OPTS", "").split()
    if "-Xrs" not in options:
        os.environ["LIBHDFS_OPTS"] = " ".join([*options, "-Xrs"])


def unreachable(place: str, error: BaseException) -> UnusableTarget:
    """The error of a table whose files cannot be reached: TableUnreachable, unless something is missing on our side."""
    text = str(error) or type(error).__name__
    told = f"{place} cannot be reached: {_in_one_line(text)}."
    advice = next((advice for sign, advice in ADVICE.items() if sign.search(text)), None)
    return TableUnreachable(told) if advice is None else UnusableTarget(f"{told} {advice}.")


def unwritable(place: str, error: BaseException) -> TableUnreachable:
    """The error of a table that could not be changed, as on a disk that is full; what it has by now is not known."""
    said = _in_one_line(str(error) or type(error).__name__)
    return TableUnreachable(
        f"{place} cannot be written to: {said}. Start again once that is mended: it goes on with what the table has."
    )


def _in_one_line(text: str) -> str:
    lines = [line for line in text.splitlines() if not line.startswith("dlopen(")]  # of each place of a library
    return CAUSED_BY.sub(": ", "\n".join(lines)).strip().rstrip(".")
