"""`barnabas broker-api-versions`: kafka-broker-api-versions, which shows the APIs of brokers and their versions.

"Usable" is the newest version that the broker and the clients of Apache Kafka 4.3.0 both know.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from barnabas.cli.broker_api_versions.client_apis import CLIENT_APIS, name_of, span_text, usable, usable_text
from barnabas.cli.common.connection import ConnectionOptions, connection_options
from barnabas.cli.common.help import Command
from barnabas.cli.common.options import takes
from barnabas.cli.common.output import Style, choose_style, json_option, print_json, print_table

if TYPE_CHECKING:
    from barnabas.clients.admin.brokers import RegisteredBroker

    Versions = dict[int, tuple[int, int]]
    """The oldest and the newest version of each API, by its key."""


@dataclass(frozen=True, kw_only=True)
class Options(ConnectionOptions):
    """The options of `barnabas broker-api-versions`."""

    as_json: bool


@click.command(
    "broker-api-versions",
    cls=Command,
    examples=[
        ("of all brokers of the cluster", "barnabas broker-api-versions"),
        ("do brokers serve the new group protocol?", "barnabas broker-api-versions | grep ConsumerGroupHeartbeat"),
    ],
)
@connection_options
@json_option
@takes(Options)
def command(options: Options) -> None:
    """Show which APIs each broker serves, in which versions. The flags are those of kafka-broker-api-versions."""
    with options.connect() as cluster:
        found = cluster.brokers.api_versions()
    match choose_style(as_json=options.as_json):
        case Style.JSON:
            print_json([_document(broker, versions) for broker, versions in found.items()])
        case Style.PLAIN:
            for broker, versions in found.items():
                print_lines(broker, versions)
        case Style.TABLE:
            for broker, versions in found.items():
                _print_table(broker, versions)


def _document(broker: RegisteredBroker, versions: Versions) -> dict[str, object]:
    return {
        "id": broker.id,
        "host": broker.host,
        "port": broker.port,
        "rack": broker.rack,
        "versions": [
            {"key": key, "name": name_of(key), "min": span[0], "max": span[1], "usable": usable(key, span)}
            for key, span in sorted(versions.items())
        ],
    }


def print_lines(broker: RegisteredBroker, versions: Versions) -> None:
    """As kafka-broker-api-versions prints it: also the APIs that the broker does not serve."""
    lines = []
    for key in sorted(CLIENT_APIS.keys() | versions.keys()):
        span = versions.get(key)
        text = "UNSUPPORTED" if span is None else f"{span_text(span)}{usable_text(key, span)}"
        lines.append(f"{name_of(key)}({key}): {text}")
    where = f"{broker.host}:{broker.port} (id: {broker.id} rack: {broker.rack or 'null'} isFenced: false)"
    click.echo(f"{where} -> (\n\t" + ",\n\t".join(lines) + "\n)")


def _print_table(broker: RegisteredBroker, versions: Versions) -> None:
    click.echo(click.style(f"{broker.host}:{broker.port}", bold=True) + f"  broker {broker.id}")
    print_table(
        ("API", "Key", "Versions", "Usable"),
        (
            (name_of(key), key, span_text(span), "none" if (best := usable(key, span)) is None else best)
            for key, span in sorted(versions.items())
        ),
    )
