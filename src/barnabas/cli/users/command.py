"""`barnabas users`: lists, adds and deletes users that log in by SCRAM.

With --config, --data, --store or --zookeeper the metadata store itself is written. That is how the first user gets in:
a cluster whose listeners all ask for a login has nobody who could add one.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from barnabas.cli.common.combinations import Actions, all_given, at_most_one
from barnabas.cli.common.connection import ConnectionOptions, connection_options
from barnabas.cli.common.help import Command, option
from barnabas.cli.common.options import takes
from barnabas.cli.common.output import Style, choose_style, json_option, print_json, print_table
from barnabas.cli.common.values.files import FILE, NEW_FILE, NEW_FOLDER
from barnabas.cli.common.values.numbers import Whole
from barnabas.machines.security.scram import BY_TITLE, LEAST_ITERATIONS, MOST_ITERATIONS, ScramMechanism

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from barnabas.cli.users.places import UserPlace
    from barnabas.metadata.stores.store import MetadataStore

ACTIONS = Actions(
    ("list_users", "add", "delete"),
    {"mechanism": ("add", "delete"), "iterations": ("add",), "as_json": ("list_users",)},
)
DEFAULT_MECHANISM = ScramMechanism.SHA_512
OFFLINE = ("config", "data", "store", "zookeeper")


@dataclass(frozen=True, kw_only=True)
class Options(ConnectionOptions):
    """The options of `barnabas users`."""

    list_users: bool
    add: str | None
    delete: str | None
    mechanism: str | None
    iterations: int | None
    config: Path | None
    data: Path | None
    store: Path | None
    zookeeper: str | None
    as_json: bool

    def check(self) -> None:
        """Refuse what does not go together."""
        ACTIONS.check(self)
        at_most_one(self, *OFFLINE)
        if self.add == "" or self.delete == "":
            raise click.UsageError("The name of a user must not be empty.")

    @contextmanager
    def place(self) -> Iterator[UserPlace]:
        """Where the users are."""
        from barnabas.cli.users.places import RunningCluster, Tree

        if all_given(self, OFFLINE):
            yield Tree(self._store())
            return
        with self.connect() as cluster:
            yield RunningCluster(cluster.users)

    def _store(self) -> Callable[[], MetadataStore]:
        """What opens the metadata store."""
        if self.zookeeper is not None:
            from barnabas.cli.common.zookeeper import open_zookeeper

            address = self.zookeeper
            return lambda: open_zookeeper(address)
        if self.store is not None:
            from barnabas.metadata.stores.sqlite import SqliteStore

            path = self.store
            return lambda: SqliteStore(path)
        from barnabas.broker.assembly import open_store
        from barnabas.cli.common.broker_options import load_config

        config = load_config(self.config, data=self.data)
        return lambda: open_store(config)


@click.command(
    cls=Command,
    examples=[
        (
            "add the first user before any broker runs; the password is asked for",
            "barnabas users --add admin --config server.properties",
        ),
        ("the same in a script", "barnabas users --add admin --config server.properties < password.txt"),
        ("list the users of a cluster that runs", "barnabas users --list --command-config admin.properties"),
        (
            "let a user log in by SCRAM-SHA-256, too",
            "barnabas users --add alice --mechanism SCRAM-SHA-256 --command-config admin.properties",
        ),
        ("delete a user", "barnabas users --delete alice --command-config admin.properties"),
    ],
)
@option("--list", "list_users", is_flag=True, help="List all users.", section="Action")
@option("--add", metavar="NAME", help="Add a user, or change the password of a user.", section="Action")
@option(
    "--delete",
    metavar="NAME",
    help="Delete a user. Connections that are open stay open until their clients log in again.",
    section="Action",
)
@option(
    "--mechanism",
    type=click.Choice(list(BY_TITLE), case_sensitive=False),
    help=f"The SCRAM mechanism of the user.  [default: {DEFAULT_MECHANISM.title}; for --delete, both]",
    section="What",
)
@option(
    "--iterations",
    type=Whole(LEAST_ITERATIONS, MOST_ITERATIONS),
    metavar="N",
    help=f"The number of hash iterations of the password.  [default: {LEAST_ITERATIONS}]",
    section="What",
)
@option(
    "--config",
    type=FILE,
    help="Use the metadata store that this server.properties names; brokers may be stopped.",
    section="Without a broker",
)
@option(
    "--data",
    type=NEW_FOLDER,
    metavar="DIR",
    help="Use the metadata store of the broker with this data directory.",
    section="Without a broker",
)
@option(
    "--store",
    type=NEW_FILE,
    metavar="FILE",
    help="Use the metadata store in this file (metadata.store).",
    section="Without a broker",
)
@option(
    "--zookeeper", metavar="HOST:PORT/CHROOT", help="Use the metadata in this ZooKeeper.", section="Without a broker"
)
@connection_options
@json_option
@takes(Options)
def command(options: Options) -> None:
    """List, add and delete the users that can log in with SCRAM.

    The command asks for the password, or reads it as one line from standard input. It sends only the salted hash.
    """
    chosen = None if options.mechanism is None else BY_TITLE[options.mechanism]
    with options.place() as place:
        if options.list_users:
            _list(place, as_json=options.as_json)
        elif options.add is not None:
            from barnabas.cli.users.passwords import read_new_password

            mechanism, password = chosen or DEFAULT_MECHANISM, read_new_password(options.add)
            place.add(options.add, mechanism, password, options.iterations or LEAST_ITERATIONS)
            click.echo(f"User {options.add} can log in by {mechanism.title}.")
        elif options.delete is not None:
            place.delete(options.delete, list(ScramMechanism) if chosen is None else [chosen])
            click.echo(f"User {options.delete} can no longer log in{f' by {chosen.title}' if chosen else ''}.")


def _list(place: UserPlace, *, as_json: bool) -> None:
    users = place.users()
    match choose_style(as_json=as_json):
        case Style.JSON:
            print_json([{"name": name, "mechanisms": dict(found)} for name, found in users.items()])
        case Style.PLAIN:
            for name, found in users.items():
                click.echo(f"{name}\t{','.join(found)}")
        case Style.TABLE:
            print_table(("User", "Mechanisms"), ((name, ", ".join(found)) for name, found in users.items()))
