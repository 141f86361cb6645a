"""Log lines are written in one way: sentences that begin with a capital and end with a full stop or with a value."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

SOURCE = Path(__file__).parents[3] / "src" / "barnabas"
LEVELS = {"debug", "info", "warning", "error", "exception", "critical"}
LOGGERS = {"log", "logger"}
FIELDS_FIRST = {SOURCE / "pipelines" / "runner" / name for name in ("listener.py", "running.py", "supervisor.py")}
"""`query=orders.revenue ...`, which programs read."""
SENTENCE = re.compile(r"(?s)(?=[A-Z%`]|[a-z]+(\.[a-z]+)+ ).*(\.|%[sr])")
"""A value may come first, as may the name of a configuration key; a reason, a path or a name may come last."""
STOPPED_REASON = re.compile(r"(?s).*: %[sr]\.")
"""A reason ends a line by itself: it is often a sentence already."""


def texts(argument: ast.expr) -> Iterator[str]:
    """The texts that the first argument of a call of a logger can be."""
    if isinstance(argument, ast.Constant) and isinstance(argument.value, str):
        yield argument.value
    elif isinstance(argument, ast.IfExp):
        yield from texts(argument.body)
        yield from texts(argument.orelse)


def lines_of(path: Path) -> Iterator[str]:
    """What a module writes to the log."""
    text = path.read_text(encoding="utf-8")
    if "getLogger" not in text:
        return
    for node in ast.walk(ast.parse(text)):
        match node:
            case ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr=level), args=[first, *_]):
                if name in LOGGERS and level in LEVELS:
                    yield from texts(first)


def test_log_lines_are_sentences() -> None:
    found = [(path, line) for path in sorted(SOURCE.rglob("*.py")) for line in lines_of(path)]
    assert len(found) > 150
    odd = [(path, line) for path, line in found if not SENTENCE.fullmatch(line) and path not in FIELDS_FIRST]
    assert not odd
    assert not [(path, line) for path, line in found if STOPPED_REASON.fullmatch(line)]
