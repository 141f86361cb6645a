"""A new password, from the keyboard or a pipe. Never from the command line, which every user of a machine can read."""

from __future__ import annotations

import sys

import click

from barnabas.cli.common.failures import Failed


def read_new_password(name: str) -> str:
    """The password of a user: asked for twice in a terminal, else the first line of standard input."""
    return read_secret(f"Password of {name}", twice=True)


def read_secret(what: str, *, twice: bool = False) -> str:
    """A secret: asked for in a terminal, else the first line of standard input. Raises Failed if there is none."""
    if sys.stdin.isatty():
        secret: str = click.prompt(what, hide_input=True, confirmation_prompt=twice, err=True)
    else:
        secret = sys.stdin.readline().rstrip("\r\n")
    if not secret:
        raise Failed(f"{what}: there is none. Type it when asked, or give it as a line of standard input.")
    return secret
