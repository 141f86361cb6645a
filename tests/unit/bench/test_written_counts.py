"""The counts that are written down keep to what is promised of requests beside each other."""

from __future__ import annotations

import json

import pytest
from bench import counts

WRITTEN: dict[str, dict[str, dict[str, float]]] = json.loads(counts.FILE.read_text(encoding="utf-8"))


@pytest.mark.parametrize("python", WRITTEN)
@pytest.mark.parametrize("heartbeat", ["heartbeat-classic", "heartbeat-consumer", "heartbeat-share"])
def test_a_heartbeat_that_brings_nothing_new_costs_at_most_half_as_much_again_as_a_record(
    python: str, heartbeat: str
) -> None:
    """Members beat all the time, and most of the time there is nothing to say."""
    costs = WRITTEN[python]
    assert costs[heartbeat]["bytecodes"] <= 1.5 * costs["produce-record"]["bytecodes"]
    assert costs[heartbeat]["calls"] <= 1.5 * costs["produce-record"]["calls"]
