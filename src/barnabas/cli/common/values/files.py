"""Files and folders that options name, and what is read from them: text in UTF-8, and properties."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

import click

from barnabas.cli.common.failures import Failed

FILE: Final = click.Path(exists=True, dir_okay=False, path_type=Path)
"""An option or argument that names a file which is there."""
FILE_OR_INPUT: Final = click.Path(exists=True, dir_okay=False, path_type=Path, allow_dash=True)
"""Likewise; - is standard input."""
NEW_FILE: Final = click.Path(dir_okay=False, path_type=Path)
"""A file which is there or can be made."""
FOLDER: Final = click.Path(exists=True, file_okay=False, path_type=Path)
"""A folder which is there."""
NEW_FOLDER: Final = click.Path(file_okay=False, path_type=Path)
"""A folder which is there or can be made."""
INPUT: Final = "-"


def read_text(file: Path) -> str:
    """The text of a file; raises Failed for what is none."""
    try:
        return file.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise Failed(f"{file} is not text in UTF-8: byte {error.start} is invalid.") from error


def read_input(file: Path) -> tuple[str, str]:
    """The text of a file, or of standard input for -, and what to call it in messages."""
    if str(file) == INPUT:
        return sys.stdin.read(), "standard input"
    return read_text(file), str(file)


def read_properties(file: Path) -> dict[str, str]:
    """The keys and values of a properties file. What is no UTF-8 is Latin-1, as Java has always read such files."""
    from barnabas.model.config.properties import parse_properties

    data = file.read_bytes()
    try:
        text = data.decode()
    except UnicodeDecodeError:
        text = data.decode("latin-1")
    return parse_properties(text)
