"""The catalog of an Iceberg table: where the table is found, created, and found again by its metadata files.

A table is `namespace.table` in a catalog of pyiceberg's configuration, or a folder such as `lake/orders`: then the
catalog is the SQLite file `lake/iceberg.db`, and the table in it `default.orders`. If that file is lost, the table is
registered again from its last metadata file.
"""

from __future__ import annotations

import logging
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.exceptions import NoSuchTableError, TableAlreadyExistsError
from pyiceberg.io import load_file_io

from barnabas.pipelines.tables.errors import TableError, UnusableTarget
from barnabas.pipelines.tables.files.access_errors import spare_signals, unreachable, unwritable
from barnabas.pipelines.tables.files.destinations import is_remote, local_path
from barnabas.pipelines.tables.iceberg.metadata import last_metadata, metadata_in
from barnabas.pipelines.tables.targets import check_iceberg, is_in_catalog

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pyiceberg.partitioning import PartitionSpec
    from pyiceberg.schema import Schema
    from pyiceberg.table import Table as Loaded

NO_RETRIES: Final = {"commit.retry.num-retries": "0"}
"""pyiceberg's own retries would add the rows again."""

log = logging.getLogger("barnabas.pipelines")


class TableInCatalog:
    """One table's entry in its catalog, which need not be there yet."""

    def __init__(self, location: str, catalog: str, options: Mapping[str, str] | None) -> None:
        """Open the catalog. Raises UnusableTarget."""
        check_iceberg(location, catalog, options or {})
        self.location = location
        self._folder: str | None = None
        if is_in_catalog(location):
            self._name = tuple(location.split("."))
            self._catalog = _configured_catalog(catalog, options)
        else:
            self._catalog, self._folder = _catalog_beside(location)
            self._name = ("default", Path(self._folder).name)

    def close(self) -> None:
        """Close the catalog."""
        self._catalog.close()

    @property
    def properties(self) -> Mapping[str, str]:
        """The catalog's properties."""
        return self._catalog.properties

    def load_first(self) -> Loaded | None:
        """The table, or None. Raises UnusableTarget if files cannot be reached where it is, or would be."""
        spare_signals()
        address = self.location
        try:
            table = self.load()
            if table is None and is_remote(address := self.root()):
                load_file_io(self._catalog.properties, address).new_input(address).exists()
        except OSError as error:
            raise unreachable(address, error) from error
        return table

    def load(self) -> Loaded | None:
        """The table as it is now, None if there is none. Raises UnusableTarget, TableUnreachable."""
        try:
            with self.answering():
                return self._catalog.load_table(self._name)
        except NoSuchTableError:
            return self._register_again()
        except FileNotFoundError as error:
            raise UnusableTarget(
                f"the catalog has {'.'.join(self._name)}, and its files are gone ({error}): restore them, or remove it "
                "from the catalog"
            ) from error

    def load_existing(self) -> Loaded:
        """The table as it is now. Raises TableError if there is none."""
        table = self.load()
        if table is None:
            raise TableError(f"there is no table {self.location}")
        return table

    def create(self, schema: Schema, spec: PartitionSpec) -> Any:
        """A transaction that creates the table."""
        self._catalog.create_namespace_if_not_exists(self._name[:-1])
        return self._catalog.create_table_transaction(self._name, schema, self.root(), spec, properties=NO_RETRIES)

    def root(self) -> str:
        """Where a new table's files go. Raises UnusableTarget if the catalog does not say so."""
        if self._folder is not None:
            return self._folder
        warehouse = self._catalog.properties.get("warehouse")
        if warehouse is None:
            raise UnusableTarget(
                f"the catalog names no warehouse, so there is no place for {self.location}: set `warehouse` for it in "
                "pyiceberg's configuration"
            )
        return "/".join([warehouse.rstrip("/"), *self._name])

    @contextmanager
    def answering(self) -> Iterator[None]:
        """Raise TableUnreachable if the catalog's database fails, as on a disk that is full."""
        from sqlalchemy.exc import DatabaseError

        try:
            yield
        except DatabaseError as error:
            raise unwritable(f"the catalog of {self.location}", error.orig or error) from error

    def _register_again(self) -> Loaded | None:
        """The table of a folder whose catalog was lost: its last metadata file is registered in the new catalog."""
        folder = None if self._folder is None else Path(self._folder)
        found = [] if folder is None else metadata_in(folder)
        if folder is None or not found or any(each.note is None for each in found):
            return None
        last = last_metadata(found, folder)
        self._catalog.create_namespace_if_not_exists(self._name[:-1])
        log.warning("%s was not in its catalog. It is registered again, with %s.", self.location, last.path.name)
        path = local_path(last.location) / "metadata" / last.path.name  # spelled as the table spells all its files
        try:
            return self._catalog.register_table(self._name, str(path))
        except TableAlreadyExistsError:  # another job registered or created it at the same moment
            return self._catalog.load_table(self._name)


def _configured_catalog(name: str, options: Mapping[str, str] | None) -> Catalog:
    try:
        return load_catalog(name, **dict(options or {}))
    except ValueError as error:
        raise UnusableTarget(
            f"there is no Iceberg catalog {name} ({error}): describe it in ~/.pyiceberg.yaml, or give a folder such as "
            "lake/orders, which has a catalog of its own"
        ) from error


def _catalog_beside(location: str) -> tuple[Catalog, str]:
    from sqlalchemy.exc import DatabaseError

    folder = local_path(location).absolute()
    folder.parent.mkdir(parents=True, exist_ok=True)
    file = folder.parent / "iceberg.db"
    try:
        catalog = load_catalog("barnabas", type="sql", uri=f"sqlite:///{file}", warehouse=str(folder.parent))
    except DatabaseError as error:
        raise UnusableTarget(f"{file} cannot be the catalog of {location}: {error.orig}") from error
    return catalog, str(folder)
