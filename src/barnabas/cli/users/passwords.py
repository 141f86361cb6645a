"""A new password, from the keyboard or a pipe. Never from the command line, which every user of a machine can read."""

from __future__ import annotations

import sys

import click

from barnabas.cli.common.failures import Failed


def read_new_password(name: str) -> str:
    """The password of a user: asked for twice in a terminal, else the first line of standard input."""
    if sys.stdin.isatty():
        password: str = click.prompt(f"Password of {name}", hide_input=True, confirmation_prompt=True, err=True)
    else:
        password = sys.stdin.readline().rstrip("\r\n")
    if not password:
        raise Failed(f"There is no password for {name}. Type it when asked, or give it as a line of standard input.")
    return password
