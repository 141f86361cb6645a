"""What becomes of the progress that a group does not take while Spark's one thread for listeners waits."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from barnabas.clients.errors import BrokerUnreachable
from barnabas.model.ids import TopicPartition
from barnabas.pipelines.runner.listener import BatchListener
from barnabas.pipelines.spark.group_progress import GROUP_SECONDS
from tests.unit.pipelines.runner.test_metrics import PROGRESS

if TYPE_CHECKING:
    import pytest

    from barnabas.pipelines.spark.read.offsets import Offsets

READ = {TopicPartition("orders", 0): 400, TopicPartition("orders", 1): 100}


class Coordinator:
    """Takes commits, unless it is away."""

    def __init__(self) -> None:
        self.away = True
        self.timeouts: list[float] = []
        self.groups: dict[str, Offsets] = {}

    def commit(self, group: str, offsets: Offsets, *, timeout: float) -> None:
        self.timeouts.append(timeout)
        if self.away:
            raise BrokerUnreachable("nobody is there")
        self.groups[group] = offsets


def test_what_a_group_did_not_take_at_once_it_gets_at_the_end() -> None:
    coordinator: Any = Coordinator()
    listener = BatchListener({}, None, coordinator, "g")
    event: Any = SimpleNamespace(progress=SimpleNamespace(json=json.dumps(PROGRESS)))
    listener.onQueryProgress(event)
    assert coordinator.timeouts == [GROUP_SECONDS], "other listeners wait for this one"
    coordinator.away = False
    listener.close()
    assert coordinator.groups == {"g": READ}
    listener.close()
    assert len(coordinator.timeouts) == 2, "it has everything"


def test_a_report_has_what_the_table_told_of_its_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of that batch alone: one that is not written again has nothing to tell."""
    coordinator: Any = Coordinator()
    coordinator.away = False
    listener = BatchListener({}, None, coordinator, "g", {"kind": "pipeline"})
    sent: list[dict[str, Any]] = []
    monkeypatch.setattr(listener._topic, "send", lambda metrics, **about: sent.append(about))
    event: Any = SimpleNamespace(progress=SimpleNamespace(json=json.dumps(PROGRESS)))
    listener.note(PROGRESS["batchId"], {"dead_letters": 1, "letters": [("orders", 0, 7)]})
    listener.onQueryProgress(event)
    listener.onQueryProgress(event)
    assert sent == [{"kind": "pipeline", "dead_letters": 1, "letters": [("orders", 0, 7)]}, {"kind": "pipeline"}]
