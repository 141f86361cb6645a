"""Every path that a page names exists: a module or a package of src/barnabas, or a file of the repository."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parents[3]
SOURCES: Final = ROOT / "src" / "barnabas"
PAGES: Final = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "docs/ARCHITECTURE.md")),
    *sorted(ROOT.glob("docs/adr/*.md")),
]
CODE: Final = re.compile(r"`([\w.-]+(?:/[\w.-]+)+/?|[a-z]\w*/)`")
"""What stands alone between backticks and has a slash: `storage/log/log`, `tests/crash`, `machines/`."""
FOLDERS: Final = {path.name: SOURCES for path in SOURCES.iterdir()} | {
    path.name: ROOT for path in ROOT.iterdir() if not path.name.startswith(".")
}
"""Where a path begins, by its first part: at the packages, or at the repository."""


def missing(text: str) -> list[str]:
    """The paths that a text names and that do not exist."""
    named = [path for path in CODE.findall(text) if path.split("/")[0] in FOLDERS]
    return [path for path in named if not exists(FOLDERS[path.split("/")[0]] / path)]


def exists(path: Path) -> bool:
    """Whether there is such a file, folder or module, or such a name in a module (`storage/files.FileSystem`)."""
    module = path.with_name(f"{path.stem}.py")
    found = path.exists() or path.with_name(f"{path.name}.py").exists()
    return found or (module.exists() and path.suffix[1:] in re.findall(r"\w+", module.read_text("utf-8")))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_path_that_a_page_names_exists(page: Path) -> None:
    assert not missing(page.read_text("utf-8"))


def test_a_path_that_does_not_exist_is_found() -> None:
    text = "`broker/serving/dispatch`, `broker/office`, `machines/`, `tests/crash`, `tests/nowhere`, `and/or`, "
    text += "`storage/log/log.py`, `storage/files.FileSystem`, `storage/files.Nothing`"
    assert missing(text) == ["broker/office", "tests/nowhere", "storage/files.Nothing"]
