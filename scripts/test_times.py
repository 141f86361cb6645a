"""`python scripts/test_times.py [REPORT ...]`: where the time of a run of the tests went, by folder, file and test.

A report is what pytest writes with `--junit-xml`. Without one, those of the last `make check` and `make test` are read
(`.cache/test-times`). The seconds of a test hold its fixtures, also those that it makes for others; several workers
run at once, so the sum is longer than the run.
"""

from __future__ import annotations

import argparse
import sys
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple
from xml.etree import ElementTree

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

REPORTS: Final = Path(__file__).parents[1] / ".cache" / "test-times"
SHOWN: Final = 15


class MeasuredTest(NamedTuple):
    """How long one test took."""

    file: str
    name: str
    seconds: float

    def folder(self, depth: int) -> str:
        """The first folders of its path."""
        return "/".join(self.file.split("/")[:-1][:depth])


class Sum(NamedTuple):
    """What several tests took together."""

    name: str
    tests: int
    seconds: float


def read(report: Path) -> list[MeasuredTest]:
    """The tests of one report."""
    return [_test(case) for case in ElementTree.parse(report).iter("testcase")]


def _test(case: ElementTree.Element) -> MeasuredTest:
    """A test by the file that it stands in: a class in it is a part of its name."""
    parts = case.get("classname", "").split(".")
    end = next((at for at, part in enumerate(parts, 1) if part.startswith("test_")), len(parts))
    name = ".".join([*parts[end:], case.get("name", "")])
    return MeasuredTest("/".join(parts[:end]) + ".py", name, float(case.get("time", 0)))


def sums(tests: Iterable[MeasuredTest], key: Callable[[MeasuredTest], str]) -> list[Sum]:
    """What tests with the same key took together, the longest first."""
    found: dict[str, list[float]] = defaultdict(list)
    for test in tests:
        found[key(test)].append(test.seconds)
    rows = (Sum(name, len(seconds), sum(seconds)) for name, seconds in found.items())
    return sorted(rows, key=lambda row: -row.seconds)


def describe(tests: list[MeasuredTest], depth: int, shown: int) -> str:
    """The table."""
    lines = [f"{len(tests)} tests, {sum(test.seconds for test in tests):.0f} s"]
    tables = {
        "Folders": sums(tests, lambda test: test.folder(depth)),
        "Files": sums(tests, lambda test: test.file)[:shown],
        "Tests": sums(tests, lambda test: f"{test.file}::{test.name}")[:shown],
    }
    for title, rows in tables.items():
        lines += ["", title, *(f"{row.seconds:8.1f} s {row.tests:6}  {row.name}" for row in rows)]
    return "\n".join(lines)


def main() -> None:
    """Print the table of the reports that are named, or of the last run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("reports", nargs="*", type=Path)
    parser.add_argument("--of", nargs="+", default=[""], metavar="PATH", help="only tests whose file begins with these")
    parser.add_argument("--depth", type=int, default=2, help="how many folders of a path count")
    parser.add_argument("--longest", type=int, default=SHOWN, help="how many files and tests are shown")
    wanted = parser.parse_args()
    reports = wanted.reports or sorted(REPORTS.glob("*.xml"))
    if not reports:
        sys.exit(f"There is no report in {REPORTS}: run make check or make test first.")
    tests = [test for report in reports for test in read(report) if test.file.startswith(tuple(wanted.of))]
    print(describe(tests, wanted.depth, wanted.longest))


if __name__ == "__main__":
    main()
