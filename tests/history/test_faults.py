"""Clusters under a seeded storm of every kind of fault, which strikes leaders and controllers: no rule is broken.

Brokers, their disks and their clocks fail over SQLite; ZooKeeper and the network fail over ZooKeeper, with the worst
that can happen to brokers in between. `make soak` lets everything fail for hours.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Final

import pytest

from tests.history.faults import (
    FAMILIES,
    NETWORK_FAULTS,
    PROCESS_FAULTS,
    STORE_FAULTS,
    STORE_LINK_FAULTS,
    STRAND,
    TAMPERED_FAULTS,
    short_plan,
)
from tests.history.run import over_sqlite, over_zookeeper

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from tests.history.run import Report

ONE_HOST_SEED: Final = 327
HOSTS_SEED: Final = 248
LEFT_TO_SOAK: Final = frozenset(f"{verb} follower" for verb in FAMILIES)
"""Every broker leads one partition and follows the others: whoever strikes a leader strikes a follower, too."""
ON_ONE_HOST: Final = (
    *(kind for kind in (*PROCESS_FAULTS, *TAMPERED_FAULTS) if kind not in LEFT_TO_SOAK),
    "move leader",
    "move controller",
    "elect follower",
)
ON_HOSTS: Final = (
    *STORE_FAULTS,
    *(kind for kind in (*NETWORK_FAULTS, *STORE_LINK_FAULTS) if kind not in LEFT_TO_SOAK),
    "kill all",
    "freeze all",
    STRAND,
    "move follower",
)

pytestmark = pytest.mark.timeout(600)


def test_brokers_with_their_disks_and_clocks_fail(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _expect(over_sqlite(tmp_path, short_plan(ONE_HOST_SEED, ON_ONE_HOST)), ON_ONE_HOST, capsys)


def test_zookeeper_and_the_network_fail(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _expect(over_zookeeper(tmp_path, short_plan(HOSTS_SEED, ON_HOSTS)), ON_HOSTS, capsys)


def _expect(report: Report, kinds: Sequence[str], capsys: pytest.CaptureFixture[str]) -> None:
    with capsys.disabled():
        print(f"\n{report}", file=sys.stderr)
    assert sorted(report.faults) == sorted(kinds)
    assert not report.missed
    assert report.passed, str(report)
