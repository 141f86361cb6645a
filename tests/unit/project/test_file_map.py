"""The map of packages and modules in docs/ is what the tree says."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from scripts import file_map

if TYPE_CHECKING:
    from pathlib import Path

MOST: Final = 17


def test_the_pages_are_what_the_docstrings_say() -> None:
    hint = "run: python scripts/file_map.py"
    assert file_map.ARCHITECTURE.read_text("utf-8") == file_map.architecture(), hint
    assert file_map.MODULES.read_text("utf-8") == file_map.module_page(), hint


def test_a_package_holds_no_more_files_than_a_reader_can_take_in() -> None:
    one_a_family = {"broker/handlers", "cli"}  # of APIs, and of commands
    crowded = {str(package.relative_to(file_map.SOURCES)) for package in file_map.packages() if size(package) > MOST}
    assert crowded <= one_a_family


def size(package: Path) -> int:
    return len(list(package.glob("*.py")))
