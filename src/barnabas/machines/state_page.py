"""Pages that draw transition tables: a picture, what each state means, and the cause of each step.

They are made from the tables that the rules are held to: a test compares page and tables.
"""

from __future__ import annotations

import ast
import inspect
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable
    from enum import Enum

    from barnabas.machines.groups.classic.states import TransitionTable


def section(title: str, text: str, states: type[Enum], table: TransitionTable[Any]) -> Iterable[str]:
    """The lines of one table, below a title and a text."""
    yield f"## {title}\n"
    yield text
    yield "```mermaid"
    yield "stateDiagram-v2"
    yield f"    [*] --> {_name(table.initial)}"
    for (before, after), numbers in _arrows(table).items():
        yield f"    {before} --> {after}: {', '.join(map(str, numbers))}"
    yield "```\n"
    yield "| State | Meaning |"
    yield "|---|---|"
    for name, meaning in _meanings(states).items():
        yield f"| `{_name(states[name])}` | {meaning} |"
    yield "\n| | From | To | Because |"
    yield "|---|---|---|---|"
    for number, (before, after, cause) in enumerate(table.rows, 1):
        yield f"| {number} | `{_name(before)}` | `{_name(after)}` | {cause} |"
    yield ""


def _arrows(table: TransitionTable[Any]) -> dict[tuple[str, str], list[int]]:
    """One arrow for all causes that join the same two states."""
    arrows: dict[tuple[str, str], list[int]] = {}
    for number, (before, after, _) in enumerate(table.rows, 1):
        arrows.setdefault((_name(before), _name(after)), []).append(number)
    return arrows


def _name(state: Enum) -> str:
    """As Kafka writes it, also where the value is the number that records have."""
    return state.value if isinstance(state.value, str) else state.name.title().replace("_", "")


def _meanings(states: type[Enum]) -> dict[str, str]:
    """The sentences that stand below each state in its source."""
    (definition,) = ast.parse(inspect.getsource(states)).body
    assert isinstance(definition, ast.ClassDef)
    meanings = {}
    for statement, below in zip(definition.body, definition.body[1:], strict=False):
        match statement, below:
            case ast.Assign(targets=[ast.Name(id=name)]), ast.Expr(value=ast.Constant(value=str(sentence))):
                meanings[name] = " ".join(sentence.split())
    return meanings
