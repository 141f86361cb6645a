"""Brokers that do not know the APIs of elections and moves."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

from barnabas.cli.common import connection
from barnabas.clients.admin.replicas import Replicas
from barnabas.clients.errors import RequestRefused
from barnabas.model.errors import ErrorCode
from tests.unit.cli.conftest import FakeCluster

if TYPE_CHECKING:
    from pathlib import Path

    from tests.unit.cli.conftest import Run


class OldBroker:
    """What `WireClient` does, with one broker that answers Metadata alone."""

    def deadline(self) -> Any:
        return SimpleNamespace(passed=True)

    def ask(self, request: Any, **_: object) -> Any:
        if type(request).__name__ == "MetadataRequest":
            broker = SimpleNamespace(node_id=1, host="localhost", port=9092, rack=None)
            return SimpleNamespace(brokers=(broker,), controller_id=1, topics=())
        raise RequestRefused(ErrorCode.unsupported_version, "the broker does not serve that")


@pytest.fixture(autouse=True)
def old_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "open_cluster", lambda *_: FakeCluster(replicas=Replicas(cast("Any", OldBroker()))))


def test_an_election(run: Run) -> None:
    result = run("leader-election", "--election-type", "preferred", "--all-topic-partitions")
    assert result.exit_code == 1
    assert result.stderr == (
        "Error: the brokers of this cluster do not serve ElectLeaders (API 43), which this needs\n"
    )


def test_moves(run: Run, tmp_path: Path) -> None:
    plan = tmp_path / "plan.json"
    plan.write_text(json.dumps({"partitions": [{"topic": "t", "partition": 0, "replicas": [1]}]}))
    for action in ("--execute", "--verify", "--cancel"):
        result = run("reassign-partitions", action, "--reassignment-json-file", plan)
        assert result.exit_code == 1
        assert "do not serve ListPartitionReassignments (API 46), which this needs" in result.stderr
