"""`python scripts/tree_counts.py [TREE ...]`: how large the rooms of source trees are, as ADR 0008 has it.

Files are modules, `__init__.py` included. The fan-out of a module counts the modules of Barnabas that it imports, also
inside of functions, and not what it imports for types only. A class counts with the lines of its parents.
"""

from __future__ import annotations

import ast
import sys
from collections import Counter
from pathlib import Path
from statistics import mean, median
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

LONG_FILE: Final = 500
SHOWN: Final = 6


class Class(NamedTuple):
    """A class at the top of a module."""

    name: str
    lines: int
    parents: tuple[str, ...]


def parse(tree: Path) -> dict[str, tuple[Path, ast.Module]]:
    """The modules of a tree by their names."""
    source = tree / "src"
    files = sorted((source / "barnabas").rglob("*.py"))
    names = (".".join(file.relative_to(source).with_suffix("").parts).removesuffix(".__init__") for file in files)
    return {name: (file, ast.parse(file.read_text("utf-8"))) for name, file in zip(names, files, strict=True)}


def imported(node: ast.AST, modules: Mapping[str, object]) -> Iterator[str]:
    """The modules of Barnabas that are imported anywhere below a node, but for those that only types need."""
    if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
        return
    if isinstance(node, ast.ImportFrom) and (source := node.module or "") in modules:
        whole = (f"{source}.{each.name}" for each in node.names)
        yield from (name if name in modules else source for name in whole)
    if isinstance(node, ast.Import):
        yield from (each.name for each in node.names if each.name in modules)
    for child in ast.iter_child_nodes(node):
        yield from imported(child, modules)


def classes(parsed: ast.Module) -> Iterator[Class]:
    """The classes at the top of a module."""
    for node in parsed.body:
        if isinstance(node, ast.ClassDef):
            parents = (ast.unparse(base).partition("[")[0].rpartition(".")[2] for base in node.bases)
            yield Class(node.name, (node.end_lineno or 0) - node.lineno + 1, tuple(parents))


def with_parents(which: Class, known: Mapping[str, list[Class]], below: tuple[str, ...] = ()) -> int:
    """The lines of a class and of its parents; of several with a parent's name, the longest counts."""
    below = (*below, which.name)  # a parent of the same name comes from a library
    parents = (known.get(name, ()) for name in which.parents if name not in below)
    return which.lines + sum(max((with_parents(each, known, below) for each in found), default=0) for found in parents)


def report(tree: Path) -> Iterator[str]:
    """The counts of a tree, a line each."""
    modules = parse(tree)
    files = [file for file, _ in modules.values()]
    lines = {file: len(file.read_text("utf-8").splitlines()) for file in files}
    yield f"{tree}: {len(files)} files, {sum(lines.values())} lines"
    packages = Counter(str(file.parent.relative_to(tree / "src")) for file in files)
    yield f"  packages: {len(packages)}, median {median(packages.values()):g} files; largest {_most(packages)}"
    fans = Counter({name: len({*imported(parsed, modules)} - {name}) for name, (_, parsed) in modules.items()})
    yield f"  modules imported by one: {mean(fans.values()):.1f} on average; largest {_most(fans)}"
    known: dict[str, list[Class]] = {}
    for _, parsed in modules.values():
        for each in classes(parsed):
            known.setdefault(each.name, []).append(each)
    longest = Counter({name: max(with_parents(each, known) for each in all_) for name, all_ in known.items()})
    yield f"  lines of a class with its parents: {_most(longest)}"
    long = Counter({str(file.relative_to(tree / "src")): count for file, count in lines.items() if count > LONG_FILE})
    yield f"  files over {LONG_FILE} lines: {len(long)}: {_most(long)}"


def _most(counts: Counter[str]) -> str:
    return ", ".join(f"{name.removeprefix('barnabas.')} {count}" for name, count in counts.most_common(SHOWN))


if __name__ == "__main__":
    for given in sys.argv[1:] or ["."]:
        print("\n".join(report(Path(given))))
