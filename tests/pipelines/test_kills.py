"""Two kills of a driver that fills tables and a topic; `python -m tests.pipelines.kills` does it for longer."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest

from tests.pipelines.killed_content import final_windows
from tests.pipelines.kills import Trial

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.timeout(900)
def test_each_number_is_in_each_table_and_in_the_topic_once(tmp_path: Path) -> None:
    """A Python worker dies, then the driver with its JVM, then the broker."""
    trial = Trial(tmp_path, random.Random(11))
    try:
        total = trial.run(["worker", "driver and JVM"])
    finally:
        trial.close()
    assert len(final_windows(total)) > 1
    assert trial.upkeep.merged["delta"] and trial.upkeep.merged["iceberg"]
    assert trial.died["Python worker"] == trial.died["driver"] == trial.died["JVM"] == 1
