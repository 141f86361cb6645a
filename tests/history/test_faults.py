"""Clusters under a seeded storm in which every kind of fault strikes: no history breaks a rule.

Brokers, their disks and their clocks fail over SQLite; ZooKeeper and the network fail over ZooKeeper, with the worst
that can happen to brokers in between. `make soak` lets everything fail for hours.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Final

import pytest

from tests.history.faults import (
    NETWORK_FAULTS,
    PROCESS_FAULTS,
    STORE_FAULTS,
    STORE_LINK_FAULTS,
    STRAND,
    TAMPERED_FAULTS,
    Plan,
)
from tests.history.run import over_sqlite, over_zookeeper

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from tests.history.run import Report

SEED: Final = 232
ON_ONE_HOST: Final = (*PROCESS_FAULTS, *TAMPERED_FAULTS)
ON_HOSTS: Final = (*STORE_FAULTS, *NETWORK_FAULTS, *STORE_LINK_FAULTS, "kill all", "freeze all", STRAND)

pytestmark = pytest.mark.timeout(600)


def test_brokers_with_their_disks_and_clocks_fail(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _expect(over_sqlite(tmp_path, Plan(SEED, kinds=ON_ONE_HOST)), ON_ONE_HOST, capsys)


def test_zookeeper_and_the_network_fail(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _expect(over_zookeeper(tmp_path, Plan(SEED, kinds=ON_HOSTS)), ON_HOSTS, capsys)


def _expect(report: Report, kinds: Sequence[str], capsys: pytest.CaptureFixture[str]) -> None:
    with capsys.disabled():
        print(f"\n{report}", file=sys.stderr)
    assert sorted(report.faults) == sorted(kinds)
    assert report.passed, str(report)
