"""`python scripts/file_map.py`: writes the map of packages and modules from their docstrings, so that it stays true.

The packages stand in docs/ARCHITECTURE.md, between two marks; all modules stand in docs/modules.md. A test compares
both with what this program makes of the tree.
"""

from __future__ import annotations

import ast
import inspect
import tokenize
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT: Final = Path(__file__).parents[1]
SOURCES: Final = ROOT / "src" / "barnabas"
ARCHITECTURE: Final = ROOT / "docs" / "ARCHITECTURE.md"
MODULES: Final = ROOT / "docs" / "modules.md"
BEGIN: Final = "<!-- written by scripts/file_map.py -->"
END: Final = "<!-- end of what scripts/file_map.py writes -->"
BEFORE_CODE: Final = (tokenize.COMMENT, tokenize.NL)
HEAD: Final = """\
# Every module

One line for each module: the first line of its docstring. `python scripts/file_map.py` writes this page. The way in is
[ARCHITECTURE.md](ARCHITECTURE.md).
"""


def packages() -> Iterator[Path]:
    """The folders with modules, each before those in it."""
    yield from sorted(path.parent for path in SOURCES.rglob("__init__.py"))


def sentence(path: Path) -> str:
    """The first line of a module's docstring."""
    with path.open(encoding="utf-8") as lines:
        first = next(token for token in tokenize.generate_tokens(lines.readline) if token.type not in BEFORE_CODE)
    if first.type != tokenize.STRING:
        raise SystemExit(f"{path} has no docstring")
    return inspect.cleandoc(ast.literal_eval(first.string)).splitlines()[0]


def package_table() -> str:
    """A table of all packages, for ARCHITECTURE.md."""
    lines = ["| Package | Holds |", "|---|---|"]
    for package in packages():
        name = package.relative_to(SOURCES.parent if package == SOURCES else SOURCES)
        lines.append(f"| `{name}/` | {sentence(package / '__init__.py')} |")
    return "\n".join(lines)


def module_page() -> str:
    """The page of all modules."""
    parts = [HEAD]
    for package in packages():
        modules = sorted(path for path in package.glob("*.py") if path.name != "__init__.py")
        rows = [f"| `{path.name}` | {sentence(path)} |" for path in modules]
        parts.append(f"## {package.relative_to(SOURCES.parent)}/\n\n{sentence(package / '__init__.py')}\n")
        if rows:
            parts.append("\n".join(["| Module | |", "|---|---|", *rows]) + "\n")
    return "\n".join(parts)


def architecture() -> str:
    """ARCHITECTURE.md with its table of packages made anew."""
    before, _, rest = ARCHITECTURE.read_text("utf-8").partition(BEGIN)
    after = rest.partition(END)[2]
    return f"{before}{BEGIN}\n{package_table()}\n{END}{after}"


if __name__ == "__main__":
    ARCHITECTURE.write_text(architecture(), "utf-8")
    MODULES.write_text(module_page(), "utf-8")
