"""Draws what the pipeline found: revenue by hour, a band for each country."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any

import matplotlib as mpl
from deltalake import DeltaTable

if TYPE_CHECKING:
    from datetime import datetime
    from pathlib import Path

mpl.use("Agg")

from matplotlib import dates  # after the choice of a backend that needs no screen
from matplotlib import pyplot as plt

COLOURS = ("#1b6ca8", "#f2a65a", "#58a55c", "#a8577e", "#9a9a9a")
UNKNOWN = "unknown customer"


def read(table: Path) -> dict[str, dict[datetime, float]]:
    """Revenue by country and hour, from the Delta table."""
    found: dict[str, dict[datetime, float]] = defaultdict(dict)
    for row in DeltaTable(str(table)).to_pyarrow_table().to_pylist():
        found[row["country"] or UNKNOWN][row["hour"]] = row["revenue"]
    return found


def draw(table: Path, picture: Path) -> None:
    """Draw the table as stacked bars."""
    revenue = read(table)
    hours = sorted({hour for by_hour in revenue.values() for hour in by_hour})
    figure, axes = plt.subplots(figsize=(10, 5), layout="constrained")
    floor = [0.0] * len(hours)
    for country, colour in zip(sorted(revenue, key=lambda name: (name == UNKNOWN, name)), COLOURS, strict=False):
        heights = [revenue[country].get(hour, 0.0) for hour in hours]
        times: Any = [dates.date2num(hour) for hour in hours]
        axes.bar(times, heights, bottom=floor, width=0.9 / 24, align="edge", color=colour, label=country)
        floor = [below + height for below, height in zip(floor, heights, strict=True)]
    axes.xaxis_date()
    axes.xaxis.set_major_locator(dates.HourLocator(range(0, 24, 3)))
    axes.xaxis.set_major_formatter(dates.DateFormatter("%H:%M"))
    axes.set_xlabel(f"hour of {hours[0]:%d %B %Y}, UTC")
    axes.set_ylabel("revenue")
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    axes.set_title(f"{sum(floor):,.0f} in {len(hours)} hours, by the customer's country", loc="left")
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, ncols=len(revenue), loc="upper left", bbox_to_anchor=(0, 1.0))
    axes.set_ylim(top=max(floor) * 1.15)
    figure.savefig(picture, dpi=120)
    plt.close(figure)
