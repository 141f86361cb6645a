"""The command line of `barnabas metadata`, which carries topics, ids, assignments and configs to another store.

Together with the data directories, which are in Kafka's format anyway, this moves a broker's data to Apache Kafka 3.9
in ZooKeeper mode, and back.
"""

from __future__ import annotations

import click

from barnabas.cli.common.help import CommandGroup
from barnabas.cli.common.options import Options, takes
from barnabas.cli.metadata.transfer import export, import_


@click.group(
    cls=CommandGroup,
    examples=[
        ("move to Apache Kafka 3.9: stop the broker, and export", "barnabas metadata export tree.json"),
        ("then import, before Kafka starts", "barnabas metadata import tree.json --zookeeper localhost:2181/kafka"),
        ("move from Kafka: export", "barnabas metadata export tree.json --zookeeper localhost:2181/kafka"),
        ("then import into a new Barnabas", "barnabas metadata import tree.json --data /var/lib/barnabas"),
    ],
)
@takes(Options)
def command(options: Options) -> None:
    """Copy topics, their ids and configs to another metadata store.

    Records are not in the metadata. They are in the data directories, which can be moved as they are.
    """


for one in (export, import_):
    command.add_command(one)
