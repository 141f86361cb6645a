"""The one list in the import contracts that cannot be a pattern is complete."""

from __future__ import annotations

import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[3]
CHECKER = {"check", "__init__"}


def test_the_checker_may_use_no_module_that_writes() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    (contract,) = (
        each
        for each in settings["tool"]["importlinter"]["contracts"]
        if each.get("source_modules") == ["barnabas.storage.check"]
    )
    storage = ROOT / "src" / "barnabas" / "storage"
    modules = {path.stem for path in storage.iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()}
    expected = {f"barnabas.storage.{name}" for name in modules - CHECKER}
    assert set(contract["forbidden_modules"]) == expected | {"barnabas.protocol"}
