"""The data directories that a command of `barnabas log` is about."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from barnabas.cli.common.options import Options
from barnabas.cli.common.values.files import FOLDER

if TYPE_CHECKING:
    from pathlib import Path

    from barnabas.cli.common.help import F


@dataclass(frozen=True, kw_only=True)
class FolderOptions(Options):
    """DIR..., at least one."""

    directories: tuple[Path, ...]


def folders_argument(command: F) -> F:
    """DIR..., the field of `FolderOptions`."""
    return click.argument("directories", metavar="DIR...", nargs=-1, required=True, type=FOLDER)(command)
