"""Figures as a table in Markdown, a column for each size that was measured."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable


@dataclass
class Column:
    """The figures of one size, in the order in which they were noted. A size that was not finished has only some."""

    head: str
    figures: dict[str, float] = field(default_factory=dict)

    def note(self, name: str, value: float) -> None:
        """Keep a figure, and show it at once: the next may take minutes."""
        self.figures[name] = value
        print(f"  {self.head}: {name}: {shown(value)}", flush=True)


def shown(value: float) -> str:
    """A figure with three digits, or all of a large one."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def table(title: str, columns: Iterable[Column]) -> str:
    """The table; a figure that a column does not have is left out."""
    columns = list(columns)
    names = list(dict.fromkeys(name for column in columns for name in column.figures))
    lines = [f"| {title} | {' | '.join(column.head for column in columns)} |", "|---" * (len(columns) + 1) + "|"]
    for name in names:
        values = (shown(column.figures[name]) if name in column.figures else "–" for column in columns)
        lines.append(f"| {name} | {' | '.join(values)} |")
    return "\n".join(lines)
