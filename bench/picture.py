"""The ratios as a picture: how many times better Barnabas is, on a log scale around 1.

Colours and greys are chosen to be read on white and on black alike, and the background is left open.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from bench.results import Kind

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from matplotlib.axes import Axes

    from bench.results import Comparison, Run

_AHEAD: Final = "#2a9d8f"
_BEHIND: Final = "#d1663e"
_TEXT: Final = "#7d8590"
_GROUPS: Final = (
    ("Throughput", (Kind.THROUGHPUT,)),
    ("Broker CPU", (Kind.CPU,)),
    ("Latency and start", (Kind.LATENCY, Kind.START)),
    ("Memory", (Kind.MEMORY,)),
)
_HEADLINES: Final = {
    "produce 1 KB × 6 partitions, acks=all": ("throughput", "cpu"),
    "consume 1 KB × 6 partitions": ("throughput", "cpu"),
    "end-to-end latency, 100 B": ("p50",),
    "50 producers of single records": ("throughput",),
    "one core: produce 16 KB, acks=1": ("throughput",),
    "one core: fetch 1 MB": ("throughput",),
    "50 clients that commit offsets": ("throughput",),
    "rebalance, consumer protocol": ("members-100",),
    "three brokers, 1 KB × 6 partitions × 3 replicas": ("all",),
    "kill -9 of one of three brokers, 6 s session": ("gap",),
    "start": ("seconds", "idle"),
    "Spark: topic → Parquet, 1 KB": ("throughput",),
}
"""What matters most, by the titles of rows: figures of all kinds, won and lost."""
_LOSING: Final = 4
"""So many of the others, those in which Barnabas is furthest behind, are shown with them."""
_TICKS: Final = (0.25, 0.5, 1, 2, 4, 8, 16, 32, 64)
_BAR: Final = 0.27
"""Inches per bar."""


def headlines(run: Run) -> list[Comparison]:
    """What fits on a screen: the figures that matter most, and those in which Barnabas is furthest behind."""
    shown = run.shown()
    chosen = [each for each in shown if each.metric.key in _HEADLINES.get(each.row, ())]
    others = sorted(
        (each for each in shown if each not in chosen and each.advantage < 1), key=lambda one: one.advantage
    )
    chosen += others[:_LOSING]
    return [each for each in shown if each in chosen]


def draw(comparisons: Sequence[Comparison], path: Path) -> None:
    """Write a picture of these; the suffix of the path says in which format."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    groups = [
        (title, [comparison for comparison in comparisons if comparison.metric.kind in kinds])
        for title, kinds in _GROUPS
    ]
    groups = [(title, members) for title, members in groups if members]
    sizes = [len(members) + 1.4 for _, members in groups]
    with mpl.rc_context({"font.family": "sans-serif", "svg.fonttype": "none", "svg.hashsalt": "bench"}):
        figure = Figure(figsize=(9, _BAR * sum(sizes) + 1.0), layout="constrained")
        panels = figure.subplots(len(groups), 1, sharex=True, squeeze=False, height_ratios=sizes)[:, 0]
        reach = [comparison.advantage for _, members in groups for comparison in members]
        for panel, (title, members) in zip(panels, groups, strict=True):
            _bars(panel, title, members)
        panels[0].set_xlim(min(0.9, *reach) / 1.6, max(2.0, *reach) * 1.5)
        panels[-1].set_xlabel("times better than Apache Kafka on the same machine (log scale)", color=_TEXT, fontsize=9)
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, transparent=True, metadata={"Date": None} if path.suffix == ".svg" else None, dpi=160)


def _bars(panel: Axes, title: str, members: list[Comparison]) -> None:
    places = range(len(members))
    values = [comparison.advantage for comparison in members]
    colours = [_AHEAD if value >= 1 else _BEHIND for value in values]
    panel.set_xscale("log", base=2)
    panel.barh(places, [value - 1 for value in values], left=1, height=0.66, color=colours)
    for place, value in zip(places, values, strict=True):
        ahead = value >= 1
        panel.annotate(
            f"{value:.2f}×" if value < 10 else f"{value:.0f}×",
            (value, place),
            xytext=(5 if ahead else -5, 0),
            textcoords="offset points",
            va="center",
            ha="left" if ahead else "right",
            fontsize=8.5,
            fontweight="bold",
            color=colours[place],
        )
    panel.set_title(title, loc="left", fontsize=10, fontweight="bold", color=_TEXT)
    panel.set_yticks(places, [shown.metric.caption or shown.row for shown in members], fontsize=8.5, color=_TEXT)
    panel.set_ylim(len(members) - 0.4, -0.6)
    panel.axvline(1, color=_TEXT, linewidth=1)
    panel.set_xticks(_TICKS, [f"{tick:g}×" for tick in _TICKS], fontsize=8.5, color=_TEXT)
    panel.minorticks_off()
    panel.grid(axis="x", color=_TEXT, alpha=0.2, linewidth=0.6)
    panel.set_axisbelow(True)
    panel.tick_params(length=0)
    for spine in panel.spines.values():
        spine.set_visible(False)
