"""Clusters under a short, seeded storm of faults: no history breaks a rule. `make soak` does this for hours."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Final

import pytest

from tests.history.run import over_sqlite, over_zookeeper

if TYPE_CHECKING:
    from pathlib import Path

    from tests.history.run import Report

SEED: Final = 232
"""Its plans begin with the worst: a stranded leader, all killed or frozen, a hung store, partitions."""
SECONDS: Final = 35

pytestmark = pytest.mark.timeout(400)


def test_processes_fail_over_sqlite(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _expect_none(over_sqlite(tmp_path, SEED, SECONDS), capsys)


def test_processes_the_store_and_the_network_fail_over_zookeeper(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _expect_none(over_zookeeper(tmp_path, SEED, SECONDS), capsys)


def _expect_none(report: Report, capsys: pytest.CaptureFixture[str]) -> None:
    with capsys.disabled():
        print(f"\n{report}", file=sys.stderr)
    assert len(report.faults) > 2
    assert report.passed, str(report)
