"""`barnabas security certificate`: another certificate of the development CA, or a new one for one that expires."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from barnabas.cli.common import options as common
from barnabas.cli.common.help import Command, option
from barnabas.cli.common.options import takes
from barnabas.cli.common.values.files import FILE, FOLDER, NEW_FILE, read_text
from barnabas.cli.common.values.numbers import Whole
from barnabas.model.errors import ConfigError
from barnabas.net.authority import AUTHORITY_DAYS, CERTIFICATE_DAYS

if TYPE_CHECKING:
    from pathlib import Path


@dataclass(frozen=True, kw_only=True)
class Options(common.Options):
    """The options of `barnabas security certificate`."""

    name: str
    folder: Path
    host: tuple[str, ...]
    like: Path | None
    days: int
    out: Path


@click.command(
    cls=Command,
    short_help="Make another certificate.",
    examples=[
        ("for a client, whose principal is User:CN=alice", "barnabas security certificate alice --out alice.pem"),
        (
            "for a broker, in place of one that expires; it is loaded within five seconds",
            "barnabas security certificate broker --like data.security/broker.pem --out new.pem"
            " && mv new.pem data.security/broker.pem",
        ),
    ],
)
@click.argument("name")
@option(
    "--folder",
    type=FOLDER,
    metavar="DIR",
    default="data.security",
    show_default=True,
    help="The folder of `barnabas security init`, with the CA.",
)
@option("--host", metavar="NAME", multiple=True, help="A name or address of a broker; repeatable.")
@option(
    "--like",
    type=FILE,
    metavar="FILE",
    help="A certificate whose hosts the new one has, too. Brokers refuse a new one that lacks some.",
)
@option(
    "--days",
    type=Whole(1, AUTHORITY_DAYS),
    metavar="N",
    default=CERTIFICATE_DAYS,
    show_default=True,
    help="How long it counts.",
)
@option("--out", type=NEW_FILE, metavar="FILE", required=True, help="Where to write key and certificate, as PEM.")
@takes(Options)
def certificate(options: Options) -> None:
    """Make a key and a certificate for NAME, signed by the CA of `barnabas security init`."""
    from barnabas.cli.security.folder import write_private
    from barnabas.cli.security.properties import CA_FILE, CA_KEY_FILE
    from barnabas.net.authority import Authority

    authority = Authority.load(read_text(options.folder / CA_KEY_FILE), read_text(options.folder / CA_FILE))
    hosts = (*_hosts_of(options.like), *options.host)
    write_private(options.out, authority.issue(options.name, tuple(dict.fromkeys(hosts)), days=options.days).keystore)
    click.echo(f"Wrote key and certificate of {options.name} to {options.out}.")


def _hosts_of(file: Path | None) -> tuple[str, ...]:
    from barnabas.net.authority import hosts_of_certificate

    if file is None:
        return ()
    try:
        return hosts_of_certificate(read_text(file))
    except ConfigError as error:
        raise ConfigError(f"{file}: {error}") from None
