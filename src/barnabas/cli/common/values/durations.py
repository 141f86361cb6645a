"""Lengths of time on the command line: `30s`, `5m`, `12h`, `7d`, `500ms`."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, Final

import click


class Duration(click.ParamType[timedelta]):
    """A length of time, in the words that pipeline files take."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> timedelta:
        """How long a text means."""
        from barnabas.pipelines.spec.durations import milliseconds

        if isinstance(value, timedelta):
            return value
        try:
            return timedelta(milliseconds=milliseconds(value))
        except ValueError as error:
            self.fail(str(error), param, ctx)


DURATION: Final = Duration()
