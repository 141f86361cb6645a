from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import UUID

from barnabas.broker.controller import incarnation
from tests.support.faulty_files import FaultyFiles

if TYPE_CHECKING:
    from pathlib import Path

ID = UUID("11111111-2222-4333-8444-555555555555")


def test_the_last_run_is_known_after_the_process_was_killed(tmp_path: Path) -> None:
    """It is written through the broker's files, so that a test which loses some of them loses it, too."""
    files = FaultyFiles(tmp_path)
    assert incarnation.read(files, tmp_path) is None
    incarnation.write(files, tmp_path, ID)
    files.kill()
    assert incarnation.read(files, tmp_path) == ID


def test_what_a_power_cut_left_of_it_is_no_id(tmp_path: Path) -> None:
    files = FaultyFiles(tmp_path)
    incarnation.write(files, tmp_path, ID)
    for seed in range(20):
        files.power_loss(seed)
        assert incarnation.read(files, tmp_path) in (None, ID)
