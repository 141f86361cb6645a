"""The options that say which broker is meant, and the configuration they make.

From weak to strong: Kafka's defaults, the file of --config, --listen and --data, then --set. Without a file, two of the
defaults are for a machine of one's own and not Kafka's: listen on localhost only, and keep data in ./data.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import click

from barnabas.cli.files import read_properties
from barnabas.cli.help import F, option
from barnabas.cli.numbers import Whole

if TYPE_CHECKING:
    from collections.abc import Callable

    from barnabas.model.config.broker import BrokerConfig

MOST_BROKERS = 100
"""As many as one machine could be asked to run; each is a process of its own."""
DEFAULT_LISTEN = "localhost:9092"
DEFAULT_DATA = Path("data")
LISTENER_KEYS = ("listeners", "advertised.listeners")
DATA_KEYS = ("log.dir", "log.dirs", "metadata.store")


def config_option(command: F) -> F:
    """`--config FILE`."""
    return option(
        "--config",
        type=click.Path(exists=True, dir_okay=False, path_type=Path),
        help="A server.properties file, Kafka's or yours.",
        section="Configuration",
    )(command)


def set_option(command: F) -> F:
    """`--set KEY=VALUE`."""
    return option(
        "--set",
        "settings",
        metavar="KEY=VALUE",
        multiple=True,
        help="One setting, stronger than the file; repeatable.",
        section="Configuration",
    )(command)


def listen_option(command: F) -> F:
    """`--listen HOST:PORT`."""
    return option(
        "--listen",
        metavar="HOST:PORT",
        help=f"Where to listen, in plain text. Port 0 takes a free one.  [default: {DEFAULT_LISTEN}]",
        section="Configuration",
    )(command)


def brokers_option(text: str) -> Callable[[F], F]:
    """`--brokers N`."""
    return option("--brokers", metavar="N", type=Whole(1, MOST_BROKERS), help=text)


def data_option(command: F) -> F:
    """`--data DIR`."""
    return option(
        "--data",
        type=click.Path(file_okay=False, path_type=Path),
        metavar="DIR",
        help="Where data is kept (log.dirs).  [default: ./data]",
        section="Configuration",
    )(command)


def load_config(
    config: Path | None = None, settings: tuple[str, ...] = (), listen: str | None = None, data: Path | None = None
) -> BrokerConfig:
    """The broker's configuration, checked; raises ConfigError when it cannot be used."""
    from barnabas.model.config.broker import BrokerConfig
    from barnabas.model.config.properties import parse_overrides

    properties: dict[str, str] = {}
    overrides = parse_overrides(settings)
    if config is not None:
        properties = read_properties(config)
    else:
        if not any(key in overrides for key in LISTENER_KEYS):
            listen = listen or DEFAULT_LISTEN
        if not any(key in overrides for key in DATA_KEYS[:2]):
            data = data or DEFAULT_DATA
    if listen is not None:
        if not re.fullmatch(r".*:[0-9]+", listen):
            raise click.UsageError(f"--listen {listen} is not of the form HOST:PORT.")
        for key in LISTENER_KEYS:
            properties.pop(key, None)
        properties["listeners"] = f"PLAINTEXT://{listen}"
    if data is not None:
        for key in DATA_KEYS:
            properties.pop(key, None)
        properties["log.dirs"] = str(data.absolute())
    return BrokerConfig.load(properties | overrides)
