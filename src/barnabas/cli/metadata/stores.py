"""Where a cluster's metadata is: with the data of a broker, in a file, or in a ZooKeeper."""

from __future__ import annotations

from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from barnabas.cli.common.combinations import at_most_one
from barnabas.cli.common.failures import Failed
from barnabas.cli.common.help import F, option
from barnabas.cli.common.options import Options
from barnabas.cli.common.values.files import NEW_FILE, NEW_FOLDER
from barnabas.cli.common.zookeeper import open_zookeeper

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from barnabas.metadata.stores.store import MetadataStore


@dataclass(frozen=True, kw_only=True)
class StoreOptions(Options):
    """The options that name a metadata store."""

    data: Path | None
    store: Path | None
    zookeeper: str | None

    def check(self) -> None:
        """Refuse two stores."""
        at_most_one(self, "data", "store", "zookeeper")

    @property
    def path(self) -> Path:
        """The file of a store that is not in ZooKeeper."""
        from barnabas.cli.common.broker_options import load_config

        return self.store or load_config(data=self.data).metadata_store

    @property
    def folder(self) -> Path | None:
        """The data directory that goes with the metadata, where the options tell."""
        from barnabas.cli.common.broker_options import DEFAULT_DATA

        return self.data if self.store is not None or self.zookeeper is not None else self.data or DEFAULT_DATA

    @asynccontextmanager
    async def open(self, *, must_exist: bool) -> AsyncIterator[MetadataStore]:
        """The store, started; closed at the end. Raises Failed if it is not there and must be."""
        store = open_zookeeper(self.zookeeper) if self.zookeeper is not None else self._file_store(must_exist)
        await store.start()
        try:
            yield store
        finally:
            await store.close()

    def _file_store(self, must_exist: bool) -> MetadataStore:
        from barnabas.metadata.stores.sqlite import SqliteStore

        path = self.path
        if must_exist and not path.exists():
            raise Failed(
                f"There is no metadata store at {path}. Name the file with --store FILE, or the broker's data "
                "directory with --data DIR."
            )
        return SqliteStore(path)


def store_options(command: F) -> F:
    """`--data`, `--store` and `--zookeeper`, the fields of `StoreOptions`."""
    for decorate in (
        option(
            "--zookeeper",
            metavar="HOST:PORT/CHROOT",
            help="The metadata in a ZooKeeper.",
            section="Where the metadata is",
        ),
        option(
            "--store",
            type=NEW_FILE,
            metavar="FILE",
            help="The metadata in this file (metadata.store).",
            section="Where the metadata is",
        ),
        option(
            "--data",
            type=NEW_FOLDER,
            metavar="DIR",
            help="The metadata of the broker whose data directory is DIR.  [default: ./data]",
            section="Where the metadata is",
        ),
    ):
        command = decorate(command)
    return command
