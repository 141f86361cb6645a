"""Options that are given as NAME=VALUE, any number of times; and lists of numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from collections.abc import Iterable


def parse_pairs(texts: Iterable[str], flag: str, form: str = "NAME=VALUE") -> dict[str, str]:
    """The pairs as a mapping, in which the last of a name counts; raises UsageError for what is no pair."""
    found = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name.strip():
            raise click.UsageError(f"{flag} {text} is not of the form {form}.")
        found[name.strip()] = value
    return found


def parse_numbers(text: str, flag: str) -> list[int]:
    """`0,1,2` as numbers, none for an empty text; raises UsageError for what is no number."""
    try:
        return [int(part) for part in text.split(",") if part.strip()]
    except ValueError as error:
        raise click.UsageError(f"{flag} {text} is not a list of numbers.") from error
