"""The group that shows a load's progress is for people: the load goes on without it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from barnabas.clients.errors import BrokerUnreachable
from tests.support.load_jobs import MemoryTopic, load_from

if TYPE_CHECKING:
    from pathlib import Path

    from barnabas.pipelines.spark.read.offsets import Offsets


@pytest.mark.parametrize(("pause", "times"), [(0.0, 2), (10.0, 1)])
def test_a_group_that_was_not_told_is_told_again_after_a_while(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pause: float, times: int
) -> None:
    """The load tells it after its commit, and would again when it looks whether there is more."""
    told: list[Offsets] = []

    def commit(_: str, offsets: Offsets, *, timeout: float) -> None:
        assert timeout == pause
        told.append(offsets)
        if len(told) == 1:
            raise BrokerUnreachable("nobody answers")

    topic = MemoryTopic()
    monkeypatch.setattr(topic, "commit", commit)
    monkeypatch.setattr("barnabas.pipelines.loading.group.GROUP_SECONDS", pause)
    topic.send(b"{}")
    load_from(topic, str(tmp_path / "t"), monkeypatch)
    assert len(told) == times
    assert told[0] == told[-1]
