"""The figures as tables for a terminal, or as plain lines for a pipe."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from rich.console import RenderableType

    from barnabas.cli.top.figures import Figures

UNITS: Final = ("B", "KB", "MB", "GB", "TB")

Table = tuple[str, "Sequence[str]", "list[Sequence[str]]"]


def tables(figures: Figures) -> list[Table]:
    """Titles, columns and cells."""
    brokers: list[Sequence[str]] = [
        (
            row.target,
            _number(row.messages),
            _bytes(row.bytes_in),
            _bytes(row.bytes_out),
            _number(row.requests),
            "-" if row.produce_p99_ms is None else f"{row.produce_p99_ms:.2f}",
            "-" if row.idle is None else f"{100 * row.idle:.0f} %",
            str(row.connections),
            str(row.leaders),
        )
        for row in figures.brokers
        if row.failure is None
    ]
    heads = ("broker", "messages/s", "in/s", "out/s", "requests/s", "p99 ms", "idle", "connections", "leads")
    return [
        ("Brokers", heads, brokers),
        (
            "Topics",
            ("topic", "messages/s", "in/s", "out/s"),
            [(row.topic, _number(row.messages), _bytes(row.bytes_in), _bytes(row.bytes_out)) for row in figures.topics],
        ),
        (
            "Lag",
            ("group", "topic", "lag", "grows by/s"),
            [(row.group, row.topic, str(row.lag), f"{row.per_second:+.0f}") for row in figures.lags],
        ),
        (
            "Slow requests",
            ("broker", "request", "client", "ms", "in the event loop"),
            [(row.broker, row.kind, row.client, f"{row.ms:.0f}", f"{row.in_loop_ms:.0f}") for row in figures.slow],
        ),
    ]


def lines(figures: Figures) -> Iterable[str]:
    """Plain lines: problems first, then each table with tabs."""
    yield from figures.problems
    for title, columns, rows in tables(figures):
        if rows:
            yield f"{title}:"
            yield "\t".join(columns)
            yield from ("\t".join(row) for row in rows)


def screen(figures: Figures) -> RenderableType:
    """The same for a terminal."""
    from rich import box
    from rich.console import Group
    from rich.table import Table as RichTable
    from rich.text import Text

    parts: list[RenderableType] = [Text(problem, style="bold red") for problem in figures.problems]
    for title, columns, rows in tables(figures):
        if not rows:
            continue
        table = RichTable(title=title, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
        for place, column in enumerate(columns):
            left = all(not _is_number(row[place]) for row in rows)
            table.add_column(column, justify="left" if left else "right", no_wrap=True)
        for row in rows:
            table.add_row(*(Text(cell) for cell in row))
        parts.append(table)
    return Group(*parts)


def _is_number(cell: str) -> bool:
    return cell[:1].isdigit() or cell[:1] in "+-"


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 10 else f"{value:.1f}"


def _bytes(value: float) -> str:
    for unit in UNITS[:-1]:
        if value < 1000:
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1000
    return f"{value:.1f} {UNITS[-1]}"
