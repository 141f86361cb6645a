"""Which format the table at a place has, told by what lies there: nobody has to say it again once a table is made."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from barnabas.pipelines.tables.errors import UnusableTarget
from barnabas.pipelines.tables.files.destinations import is_remote, local_path
from barnabas.pipelines.tables.targets import is_in_catalog

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

TITLES: Final = {"parquet": "plain Parquet", "delta": "Delta", "iceberg": "Iceberg"}
NEW: Final = "parquet"
"""What a table becomes that is not there yet, if nobody says."""


def format_at(location: str, options: Mapping[str, str] | None = None) -> str | None:
    """The format of the table at a place, None if there is none that we know."""
    if is_remote(location):
        return "delta" if _is_delta_at_address(location, options) else None
    found = _format_of_folder(local_path(location))
    return "iceberg" if found is None and is_in_catalog(location) and not local_path(location).exists() else found


def agreed_format(location: str, wanted: str | None, options: Mapping[str, str] | None = None) -> str:
    """The format to open a table with: the one that is there, or else the wanted one.

    Raises UnusableTarget if a table of another format is in the folder.
    """
    if wanted is None:
        return format_at(location, options) or NEW
    found = None if is_remote(location) else _format_of_folder(local_path(location))
    if found is not None and found != wanted and not (wanted == "iceberg" and is_in_catalog(location)):
        raise UnusableTarget(
            f"{location} is a {TITLES[found]} table, not {TITLES[wanted]}: leave the format out, or say {found}, to "
            "use it as it is. For another table, choose another place."
        )
    return wanted


def _format_of_folder(folder: Path) -> str | None:
    if (folder / "_delta_log").is_dir():
        return "delta"
    if (folder / "_barnabas" / "log").is_dir():
        return "parquet"
    return "iceberg" if any((folder / "metadata").glob("*.metadata.json")) else None


def _is_delta_at_address(location: str, options: Mapping[str, str] | None) -> bool:
    from deltalake import DeltaTable

    from barnabas.pipelines.tables.files.access_errors import unreachable

    try:
        return DeltaTable.is_deltatable(location, dict(options or {}))
    except Exception as error:
        raise unreachable(location, error) from error
