"""Which topics an option means: a regular expression for whole names, in which commas separate several."""

from __future__ import annotations

import re

import click

_NAME = re.compile(r"[A-Za-z0-9._-]+")


def is_name(text: str) -> bool:
    """Whether this means one topic, unless it is an expression after all: a topic's name may have dots."""
    return _NAME.fullmatch(text) is not None


def parse_topics(text: str, flag: str) -> re.Pattern[str]:
    """The expression that Kafka's tools make of such a text; raises UsageError."""
    try:
        return re.compile(text.replace(" ", "").strip("\"'").replace(",", "|"))
    except re.error as error:
        raise click.UsageError(f"{flag} {text} is not a regular expression: {error}.") from error
