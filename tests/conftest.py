"""What all tests share: a failing test shows what the processes around it last said, and none outlives the tests."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

import pytest

from tests.support import processes

if TYPE_CHECKING:
    from collections.abc import Generator


def pytest_configure() -> None:
    """End like after Ctrl-C when the run is terminated, so that fixtures still end their processes."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Add the end of each running process's output to the report of a failed test."""
    report = yield
    if report.failed:
        report.sections.extend((f"{child.name}, {child.log}", child.tail()) for child in processes.running)
    return report
