"""Files that options name: text in UTF-8, and properties."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.cli.failures import Failed

if TYPE_CHECKING:
    from pathlib import Path


def read_text(file: Path) -> str:
    """The text of a file; raises Failed for what is none."""
    try:
        return file.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise Failed(f"{file} is no text in UTF-8, as its byte {error.start} shows.") from error


def read_properties(file: Path) -> dict[str, str]:
    """The keys and values of a properties file. What is no UTF-8 is Latin-1, as Java has always read such files."""
    from barnabas.model.config.properties import parse_properties

    data = file.read_bytes()
    try:
        text = data.decode()
    except UnicodeDecodeError:
        text = data.decode("latin-1")
    return parse_properties(text)
