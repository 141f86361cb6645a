"""A few random kills of a load into all table formats; `python -m tests.pipelines.kills` does it for longer."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.pipelines.kills import Trial

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.timeout(900)
def test_each_number_is_in_each_table_once(tmp_path: Path) -> None:
    trial = Trial(tmp_path, seed=11)
    try:
        assert trial.run(kills=3) > 500
    finally:
        trial.close()
    assert sum(trial.killed.values()) >= 3
