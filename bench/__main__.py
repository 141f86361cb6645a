"""`python -m bench`: measure Apache Kafka and Barnabas side by side, or show again what was measured."""

from __future__ import annotations

import argparse
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import barnabas
from bench import kept, measure, picture, report, results
from bench.clients.java import KAFKA
from bench.lab import FULL, QUICK, Lab, Scale, say
from bench.rows import ROWS

_ROOT: Final = Path(__file__).parents[1]
_RESULTS: Final = _ROOT / "bench" / "results"
_PICTURE: Final = _ROOT / "docs" / "images" / "bench.svg"
_WHOLE_PICTURE: Final = _ROOT / "docs" / "images" / "bench-all.svg"
_PAGE: Final = _ROOT / "docs" / "benchmarks.md"


def main() -> int:
    """Run the command line."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # as Ctrl-C: the brokers that were started end with us
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # what pip installs is compiled once, not at every start
    options = _options()
    titles = [row.title for row in ROWS]
    if options.saved or options.kept:
        runs = [results.load(path) for path in options.saved]
        if options.kept:
            runs = sorted((*runs, *kept.load(ROWS)), key=lambda run: run.when)
        if not runs:
            print("No row is kept yet: python -m bench --keep", file=sys.stderr)
            return 2
        run = results.merge(runs, titles)
    else:
        if sys.platform != "linux":
            print("The comparison reads /proc and needs Linux.", file=sys.stderr)
            return 2
        runs = _measure(QUICK if options.quick else FULL, options.only, options.folder, keep=options.keep)
        run = results.merge(runs, titles)
        path = _RESULTS / f"{run.when.replace(':', '')}-{run.form}.json"
        results.save(run, path)
        say(f"saved {path}")
    print(report.table(run))
    if options.picture:
        picture.draw(picture.headlines(run), _PICTURE)
        picture.draw(run.shown(), _WHOLE_PICTURE)
        say(f"drew {_PICTURE} and {_WHOLE_PICTURE}")
    if options.docs:
        report.write_docs(run, _PAGE)
        say(f"wrote {_PAGE}")
    return 1 if run.failures else 0


def _options() -> argparse.Namespace:
    names = [row.name for row in ROWS]
    parser = argparse.ArgumentParser(
        prog="python -m bench",
        description="Apache Kafka and Barnabas on this machine, by turns, as ratios. Rows: " + ", ".join(names),
    )
    parser.add_argument("--quick", action="store_true", help="a short look: few repetitions and records")
    parser.add_argument(
        "--only", nargs="+", metavar="ROW", choices=names, default=names, help="measure only these rows"
    )
    parser.add_argument("--folder", type=Path, metavar="DIR", help="where the data lies meanwhile (a temporary folder)")
    parser.add_argument("--picture", action="store_true", help="draw docs/images/bench.svg and bench-all.svg")
    parser.add_argument("--docs", action="store_true", help=f"write a table into {_PAGE.relative_to(_ROOT)}")
    parser.add_argument(
        "--saved",
        nargs="+",
        type=Path,
        default=[],
        metavar="JSON",
        help="measure nothing: show saved runs as one; a row of one that is named later replaces an earlier one",
    )
    parser.add_argument("--keep", action="store_true", help="keep the rows in the repository; not with --quick")
    parser.add_argument(
        "--kept",
        action="store_true",
        help="measure nothing: show the rows that are kept; with --saved those together with these, the newest of each",
    )
    options = parser.parse_args()
    if options.docs and not options.kept:
        parser.error("--docs goes with --kept: the page has what is kept of each row")
    if options.keep and options.quick:
        parser.error("--keep needs the long form: a quick one says too little to be published")
    return options


def _measure(scale: Scale, names: list[str], folder: Path | None, *, keep: bool) -> list[results.Run]:
    """A run of each row; each is kept as soon as it is measured, since all of them take hours."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    runs: list[results.Run] = []
    setting, started = _setting(), time.monotonic()
    with tempfile.TemporaryDirectory(prefix="barnabas-bench-", dir=folder) as scratch, Lab(scale, Path(scratch)) as lab:
        for row in ROWS:
            if row.name not in names:
                continue
            say(f"{row.title} ({row.name}), {time.monotonic() - started:.0f} s so far")
            noted = len(lab.notes)
            comparisons: list[results.Comparison] = []
            failures: dict[str, str] = {}
            try:
                comparisons = row.compare(lab)
            except Exception as error:
                traceback.print_exc()
                failures[row.title] = f"{type(error).__name__}: {error}".splitlines()[0]
                lab.show_logs()
                lab.abandon()
            run = results.Run(
                when=datetime.now(UTC).isoformat(timespec="seconds"),
                form=scale.form,
                repetitions=scale.repetitions,
                machine=setting,
                comparisons=tuple(comparisons),
                notes=tuple(lab.notes[noted:]),
                failures=failures,
            )
            runs.append(run)
            if keep:
                for path in kept.keep([run], ROWS):
                    say(f"kept {path}")
    say(f"took {time.monotonic() - started:.0f} s")
    return runs


def _setting() -> dict[str, str]:
    """The machine and what was compared on it."""
    commit = _git("describe", "--always")
    # Rows that are kept meanwhile are no other Barnabas.
    if commit and _git("status", "--porcelain", "--untracked-files=no", "--", ".", ":(exclude)bench/kept"):
        commit += "-dirty"
    return measure.machine() | {
        "kafka": f"Apache Kafka {KAFKA}",
        "barnabas": f"Barnabas {barnabas.__version__}{f' ({commit})' if commit else ''}",
    }


def _git(*words: str) -> str:
    """What git says of this checkout; nothing where it is none."""
    done = subprocess.run(["git", "-C", str(_ROOT), *words], capture_output=True, text=True, check=False)
    return done.stdout.strip()


if __name__ == "__main__":
    sys.exit(main())
