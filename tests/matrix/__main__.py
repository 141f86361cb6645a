"""Run clients over all of their cells at once, and print what came of it: `python -m tests.matrix [CLIENT ...]`."""

from __future__ import annotations

import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

from tests.matrix.broker import PASSWORD, MatrixBroker
from tests.matrix.cells import cells
from tests.matrix.clients import CLIENTS, able, wrong
from tests.support.jars import MissingProgram

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.matrix.cells import Cell


def main(names: Sequence[str]) -> int:
    """Print one line for each client; 1 if a cell ended as it must not, or a client cannot run here."""
    with tempfile.TemporaryDirectory() as folder, MatrixBroker(Path(folder)) as broker:
        tried = cells(broker)
        chosen = names or list(CLIENTS)
        with ThreadPoolExecutor(len(chosen)) as pool:
            failures = sum(pool.map(lambda name: _run(name, tried), chosen))
        assert broker.alive, broker.tail()
        assert PASSWORD not in broker.log.read_text()
        assert broker.stop() == 0, broker.tail()
    return int(failures > 0)


def _run(name: str, tried: list[Cell]) -> int:
    began = time.monotonic()
    try:
        outcomes = CLIENTS[name](able(name, tried))
    except MissingProgram as error:
        print(f"{name:14} cannot run: {error}")
        return 1
    complaints = wrong(name, tried, outcomes)
    seconds = time.monotonic() - began
    words = [f"{name:14} {len(outcomes)} cells in {seconds:.1f} s, {len(complaints)} of them wrong", *complaints]
    print("\n    ".join(words))
    return len(complaints)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
