"""Spans of time as people type them: `30s`, `5m`, `12h`, `7d`, `500ms`."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any, Final

import click

_UNITS: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


class Duration(click.ParamType[timedelta]):
    """A number and a unit."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> timedelta:
        """The span that a text means."""
        if isinstance(value, timedelta):
            return value
        match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h|d)", value.strip())
        if match is None:
            self.fail(f"{value} is not a span of time: write a number and ms, s, m, h or d, as in 30s", param, ctx)
        return timedelta(seconds=float(match[1]) * _UNITS[match[2]])


DURATION: Final = Duration()
