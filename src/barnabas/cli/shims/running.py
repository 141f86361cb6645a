"""Which servers the scripts of one folder have started: `kafka-server-stop` takes no argument and has to know.

Kafka's script looks for processes by name, and ends all that it finds. Here each folder of scripts keeps a list of
data directories; whether a server runs there is asked of the directory itself, so old lines do no harm.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

LIST_FILE: Final = ".started"


def remember(folder: Path, kind: str, directory: Path) -> None:
    """Add a data directory to the list of a folder of scripts."""
    line = f"{kind} {directory.absolute()}"
    known = _lines(folder)
    if line not in known:
        (folder / LIST_FILE).write_text("\n".join([*known, line, ""]), encoding="utf-8")


def started(folder: Path, kind: str) -> list[Path]:
    """Data directories of servers that were started by scripts of this folder, running or not."""
    return [Path(line.partition(" ")[2]) for line in _lines(folder) if line.partition(" ")[0] == kind]


def _lines(folder: Path) -> list[str]:
    try:
        return (folder / LIST_FILE).read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        return []
