"""`barnabas security certificate`: another certificate of the development CA, or a new one for one that expires."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from barnabas.cli.common import options as common
from barnabas.cli.common.help import Command, option
from barnabas.cli.common.options import takes
from barnabas.cli.common.values.files import FOLDER, NEW_FILE, read_text
from barnabas.cli.common.values.numbers import Whole
from barnabas.net.authority import AUTHORITY_DAYS, CERTIFICATE_DAYS

if TYPE_CHECKING:
    from pathlib import Path


@dataclass(frozen=True, kw_only=True)
class Options(common.Options):
    """The options of `barnabas security certificate`."""

    name: str
    folder: Path
    host: tuple[str, ...]
    days: int
    out: Path


@click.command(
    cls=Command,
    short_help="Make another certificate.",
    examples=[
        ("for a client, whose principal is User:CN=alice", "barnabas security certificate alice --out alice.pem"),
        (
            "for a broker, in place of one that expires; it is loaded within five seconds",
            "barnabas security certificate broker --host localhost --host 127.0.0.1 --out new.pem"
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
    write_private(options.out, authority.issue(options.name, options.host, days=options.days).keystore)
    click.echo(f"Wrote key and certificate of {options.name} to {options.out}.")
