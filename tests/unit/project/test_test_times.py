"""The sums of the time that tests took."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scripts.test_times import MeasuredTest, Sum, describe, read, sums

if TYPE_CHECKING:
    from pathlib import Path

REPORT = """<?xml version="1.0" encoding="utf-8"?>
<testsuites><testsuite name="pytest">
<testcase classname="tests.unit.broker.test_app" name="test_a[1]" time="0.5" />
<testcase classname="tests.unit.broker.test_app.TestStops" name="test_b" time="1.25" />
<testcase classname="tests.cluster.test_quotas" name="test_c" time="2.0"><failure /></testcase>
</testsuite></testsuites>
"""


def test_times_are_summed_by_folder_file_and_test(tmp_path: Path) -> None:
    report = tmp_path / "report.xml"
    report.write_text(REPORT, "utf-8")
    tests = read(report)
    assert tests[1] == MeasuredTest("tests/unit/broker/test_app.py", "TestStops.test_b", 1.25)
    assert sums(tests, lambda test: test.folder(2)) == [Sum("tests/cluster", 1, 2.0), Sum("tests/unit", 2, 1.75)]
    shown = describe(tests, depth=2, shown=1)
    assert shown.startswith("3 tests, 4 s\n")
    assert "2.0 s      1  tests/cluster/test_quotas.py::test_c" in shown
