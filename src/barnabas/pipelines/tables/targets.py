"""Where a table of a format can be, as far as its name tells: found before any library is loaded, or Spark. Pure."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from barnabas.model.remedies import Remedy, RemedyKind
from barnabas.pipelines.tables.errors import UnusableTarget
from barnabas.pipelines.tables.files.destinations import is_remote, local_path

if TYPE_CHECKING:
    from collections.abc import Mapping

DEFAULT_CATALOG: Final = "default"
FEWEST_SNAPSHOTS: Final = 2
"""The last one, and the one before, with which readers may have begun."""
_IN_CATALOG: Final = re.compile(r"\w+(\.\w+)+")


def is_in_catalog(location: str) -> bool:
    """Whether a location is the name of an Iceberg table in a catalog, as `sales.orders`, and no folder."""
    return _IN_CATALOG.fullmatch(location) is not None


def check_target(location: str, format: str, catalog: str, options: Mapping[str, str]) -> None:
    """Raise UnusableTarget if no table of this format can be at a location, or it would not heed what is said of it."""
    if format == "parquet":
        check_parquet(location)
    elif format == "iceberg":
        check_iceberg(location, catalog, options)


def check_parquet(location: str) -> None:
    """Raise UnusableTarget unless this is a folder."""
    if is_remote(location):
        raise UnusableTarget(
            f"{location} is not a folder of this machine: plain Parquet needs file locks, hard links and "
            "renames. Use the format delta or iceberg."
        )


def check_iceberg(location: str, catalog: str, options: Mapping[str, str]) -> None:
    """Raise UnusableTarget unless this is the name of a table in a catalog, or a folder and nothing else is said."""
    if is_in_catalog(location):
        return
    if is_remote(location):
        raise UnusableTarget(
            f"{location} is no table in a catalog: name it as namespace.table, with a catalog whose warehouse is there"
        )
    name = local_path(location).absolute().name
    if not re.fullmatch(r"\w+", name):
        raise UnusableTarget(f"{name} cannot name an Iceberg table: use letters, digits and _")
    said = [*options, *([] if catalog == DEFAULT_CATALOG else [f"the catalog {catalog}"])]
    if said:
        raise UnusableTarget(
            f"{location} is a folder, whose catalog is beside it: {', '.join(said)} has no effect. Catalogs and "
            "options are for tables that are named as namespace.table."
        )


def check_kept_snapshots(format: str, number: int) -> None:
    """Raise UnusableTarget unless a table of this format can keep so many snapshots and no more."""
    if format != "iceberg":
        raise UnusableTarget(
            f"only an Iceberg table has snapshots to keep, and this table is {format}: leave their number out."
        ).with_remedy(Remedy(RemedyKind.EXPIRE_VERSIONS))
    if number < FEWEST_SNAPSHOTS:
        raise UnusableTarget(
            f"{number} is too few: an Iceberg table keeps at least {FEWEST_SNAPSHOTS} snapshots, the last one and the "
            "one before it, which readers may still use."
        )
