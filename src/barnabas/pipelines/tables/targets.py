"""Where a table of a format can be, as far as its name tells: found before any library is loaded, or Spark. Pure."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from barnabas.pipelines.tables.destinations import is_remote, local_path
from barnabas.pipelines.tables.errors import UnusableTarget

if TYPE_CHECKING:
    from collections.abc import Mapping

DEFAULT_CATALOG: Final = "default"
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
            f"{location} is not a folder of this machine: plain Parquet is kept exact by locks, links and renames "
            "that an address does not have. Use --format delta or iceberg."
        )


def check_iceberg(location: str, catalog: str, options: Mapping[str, str]) -> None:
    """Raise UnusableTarget unless this is the name of a table in a catalog, or a folder and nothing else is said."""
    if is_in_catalog(location):
        return
    if is_remote(location):
        raise UnusableTarget(
            f"{location} is no table in a catalog: name it as namespace.table, with a catalog whose warehouse lies "
            "there"
        )
    name = local_path(location).absolute().name
    if not re.fullmatch(r"\w+", name):
        raise UnusableTarget(f"{name} cannot name an Iceberg table: use letters, digits and _")
    said = [*options, *([] if catalog == DEFAULT_CATALOG else [f"the catalog {catalog}"])]
    if said:
        raise UnusableTarget(
            f"{location} is a folder, whose catalog lies beside it: {', '.join(said)} would set nothing. Catalogs and "
            "options are for tables that are named as namespace.table."
        )
