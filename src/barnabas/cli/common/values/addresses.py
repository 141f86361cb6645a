"""Addresses to listen on, `HOST:PORT`."""

from __future__ import annotations

import click


def check_listen_address(text: str, flag: str) -> None:
    """Refuse what is not of the form HOST:PORT."""
    host, _, port = text.rpartition(":")
    if not host or not port.isdecimal() or int(port) > 65_535:
        raise click.UsageError(f"{flag} {text} is not of the form HOST:PORT.")
