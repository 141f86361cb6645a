"""Real workers of a queue while brokers, coordinators, workers and the network fail: no history breaks a rule.

`make queues` runs hundreds of seeds with all faults; here each store has one, with the faults that queues are made for.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Final

import pytest

from tests.history.faults import Plan
from tests.history.queues.run import queues_on_hosts, queues_on_one_host, run

if TYPE_CHECKING:
    from pathlib import Path

    from tests.history.queues.run import QueueReport

ON_ONE_HOST: Final = ("kill leader", "kill worker", "freeze share coordinator")
ON_HOSTS: Final = ("isolate leader", "kill group coordinator", "freeze worker")

pytestmark = pytest.mark.timeout(600)


def test_brokers_and_workers_fail(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with queues_on_one_host(tmp_path) as stage:
        _expect(run(stage, tmp_path, "SQLite", Plan(2, kinds=ON_ONE_HOST)), capsys)


def test_the_network_and_coordinators_fail(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with queues_on_hosts(tmp_path) as stage:
        _expect(run(stage, tmp_path, "ZooKeeper", Plan(3, kinds=ON_HOSTS)), capsys)


def _expect(report: QueueReport, capsys: pytest.CaptureFixture[str]) -> None:
    with capsys.disabled():
        print(f"\n{report}", file=sys.stderr)
    assert len(report.history.messages) > 100
    assert not report.violations, str(report)
    assert report.placed > 20, "too few deliveries to tell whether two workers held a message"
    assert report.looks > 6, "too few looks to tell whether something went back"
