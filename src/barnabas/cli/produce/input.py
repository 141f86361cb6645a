"""Where `barnabas produce` reads lines: from files, or from standard input."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from barnabas.cli.common.progress import progress

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path
    from typing import BinaryIO


def read_lines(files: tuple[Path, ...]) -> Iterator[str]:
    """Lines without their ends, of the files or of standard input; a person at a terminal gets a prompt, or a bar."""
    if not files:
        prompt = sys.stdin.isatty() and sys.stdout.isatty()
        yield from _lines(sys.stdin.buffer, prompt=prompt)
        return
    size = sum(file.stat().st_size for file in files)
    with progress("Sending", size, of_bytes=True) as watched:
        for file in files:
            with file.open("rb") as source:
                yield from _lines(source, watched)


def _lines(source: BinaryIO, watched: Callable[[int], None] | None = None, *, prompt: bool = False) -> Iterator[str]:
    while True:
        if prompt:
            click.echo(">", nl=False)
        line = source.readline()
        if not line:
            return
        if watched is not None:
            watched(len(line))
        yield line.rstrip(b"\r\n").decode("utf-8", "surrogateescape")
