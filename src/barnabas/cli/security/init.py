"""`barnabas security init`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from barnabas.cli.common import options as common
from barnabas.cli.common.broker_options import DEFAULT_LISTEN, MOST_BROKERS
from barnabas.cli.common.failures import Failed
from barnabas.cli.common.help import Command, option
from barnabas.cli.common.options import takes
from barnabas.cli.common.output import remark
from barnabas.cli.common.values.files import NEW_FOLDER
from barnabas.cli.common.values.numbers import Whole

if TYPE_CHECKING:
    from pathlib import Path

    from barnabas.cli.security.plan import SecurePlan


@dataclass(frozen=True, kw_only=True)
class Options(common.Options):
    """The options of `barnabas security init`."""

    data: Path | None
    listen: str | None
    brokers: int | None
    host: tuple[str, ...]
    folder: Path | None
    zookeeper: str | None


@click.command(
    cls=Command,
    short_help="Make certificates, users and settings.",
    examples=[
        ("for a broker with its data in ./data, in ./data.security", "barnabas security init"),
        ("for three brokers on this machine", "barnabas security init --brokers 3"),
        ("whose clients come by another name", "barnabas security init --host kafka.example.org --host 192.0.2.7"),
    ],
)
@option("--data", type=NEW_FOLDER, metavar="DIR", help="The data directory (log.dirs).  [default: ./data]")
@option(
    "--listen",
    metavar="HOST:PORT",
    help=f"The address of the listener, of the first broker if there are several.  [default: {DEFAULT_LISTEN}]",
)
@option("--brokers", metavar="N", type=Whole(1, MOST_BROKERS), help="For a cluster of N brokers on this machine.")
@option(
    "--host",
    metavar="NAME",
    multiple=True,
    help="A name or address that certificates of brokers have, besides localhost and that of this machine; repeatable.",
)
@option("--folder", type=NEW_FOLDER, metavar="DIR", help="Where to write.  [default: that of --data, with .security]")
@option("--zookeeper", metavar="HOST:PORT/CHROOT", help="The ZooKeeper that holds the metadata, if one does.")
@takes(Options)
def init(options: Options) -> None:
    """Make a development CA, certificates of brokers, users with random passwords, and the settings that fit.

    `barnabas start --secure` does the same on first use. Nothing is overwritten. The users are `admin`, who may do
    everything, `client`, who may do what rules allow, and `broker`, by which brokers log in to each other.
    """
    from barnabas.cli.security.cluster import secure
    from barnabas.cli.security.plan import make_plan

    plan = make_plan(
        data=options.data,
        listen=options.listen,
        count=options.brokers,
        hosts=options.host,
        folder=options.folder,
        zookeeper=options.zookeeper,
    )
    made = secure(plan)
    if not made.files and not made.users:
        raise Failed(f"{plan.folder} is there already, and its users are. Nothing was changed.")
    if not made.files:
        remark(f"{plan.folder} was there already, and is unchanged. Its users were missing, and were added.")
    _tell(plan)


def _tell(plan: SecurePlan) -> None:
    from barnabas.cli.security.next_steps import next_steps, path_from_here, start_lines

    for path in sorted(plan.folder.iterdir()):
        click.echo(path_from_here(path))
    remark("\n".join(["Start it with:", *start_lines(plan), next_steps(plan.folder, plan.bootstrap_servers)]))
