"""The demo removes what it made, and nothing else."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from examples.orders.job import clear

if TYPE_CHECKING:
    from pathlib import Path


def test_an_earlier_demo_is_removed(tmp_path: Path) -> None:
    folder = tmp_path / "new" / "demo"
    clear(folder)
    (folder / "tables").mkdir()
    (folder / "tables" / "part").touch()
    clear(folder)
    assert not (folder / "tables").exists()


@pytest.mark.parametrize("name", ["thesis.txt", "pipeline.toml"])
def test_a_folder_that_no_demo_made_is_left_alone(tmp_path: Path, name: str) -> None:
    (tmp_path / name).touch()
    with pytest.raises(SystemExit, match="holds what no demo made"):
        clear(tmp_path)
    assert (tmp_path / name).exists()


def test_what_was_put_beside_a_demo_is_left_alone(tmp_path: Path) -> None:
    clear(tmp_path)
    (tmp_path / "notes.txt").touch()
    with pytest.raises(SystemExit, match="holds what no demo made"):
        clear(tmp_path)
    assert (tmp_path / "notes.txt").exists()
