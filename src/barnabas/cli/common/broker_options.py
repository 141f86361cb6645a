"""The options that say which broker is meant, and the configuration they make.

From weak to strong: Kafka's defaults, the file of --config, --listen and --data, then --set. Without a file, two of the
defaults are for a machine of one's own and not Kafka's: listen on localhost only, and keep data in ./data.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from barnabas.cli.common.help import F, option
from barnabas.cli.common.options import Options
from barnabas.cli.common.values.files import FILE, NEW_FOLDER, read_properties
from barnabas.cli.common.values.numbers import Whole
from barnabas.cli.common.values.secrets import warn_of_secrets
from barnabas.model.environment import READY_FD
from barnabas.model.numbers import MAX_INT32

if TYPE_CHECKING:
    from collections.abc import Callable

    from barnabas.model.config.broker import BrokerConfig

MOST_BROKERS = 100
"""As many as one machine could be asked to run; each is a process of its own."""
AUTO = 0
"""Stands for as many brokers as the machine has cores."""
DEFAULT_LISTEN = "localhost:9092"
SECURED_SUFFIX = ".security"
"""Of the folder with what `start --secure` makes: it stands beside the data directory, as the metadata store does."""
DEFAULT_CONSOLE = "localhost:8080"
DEFAULT_DATA = Path("data")
DEFAULT_PROTOCOL = "PLAINTEXT"
SECURE_PROTOCOL = "SASL_SSL"
"""What the listener of --listen speaks, without --secure and with it."""
LISTENER_KEYS = ("listeners", "advertised.listeners")
DATA_KEYS = ("log.dir", "log.dirs", "metadata.store")


class BrokerCount(Whole):
    """How many brokers, or `auto`."""

    name = "number or auto"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """The number; AUTO for the word."""
        return AUTO if value == "auto" else super().convert(value, param, ctx)


@dataclass(frozen=True, kw_only=True)
class BrokerCommandOptions(Options):
    """The options that say which broker is meant, or which brokers of one cluster on this machine."""

    config: Path | None
    settings: tuple[str, ...]
    listen: str | None
    data: Path | None
    brokers: int | None
    first_id: int
    daemon: bool
    secure: bool
    console: str | None
    metrics: int | None

    def check(self) -> None:
        """Refuse a file besides the one that --secure writes."""
        if self.secure and self.config is not None:
            raise click.UsageError("--secure starts with settings of its own: leave out --config, or --secure.")
        if self.first_id and self.brokers is None:
            raise click.UsageError("--first-id goes with --brokers; for one broker there is --set node.id=ID.")

    def load(self, secured: Path | None = None) -> BrokerConfig:
        """The configuration of one broker, with the settings of `secured` if it is; raises ConfigError."""
        protocol = DEFAULT_PROTOCOL if secured is None else SECURE_PROTOCOL
        return load_config(secured or self.config, self.all_settings, self.listen, self.data, protocol)

    def warn_of_secrets(self) -> None:
        """Say that --set shows secrets to other users; a process that was started by another one leaves that to it."""
        if READY_FD in os.environ:
            return
        from barnabas.model.config.properties import parse_overrides

        warn_of_secrets(
            parse_overrides(self.settings),
            "Put it into the file of --config, or give a placeholder of config.providers (file, env or directory) in "
            "its place.",
        )

    @property
    def all_settings(self) -> tuple[str, ...]:
        """What was set, by --set and by options of its own."""
        return self.settings if self.metrics is None else (f"metrics.listener={self.metrics}", *self.settings)


def broker_options(brokers: str, daemon: str, secure: str, metrics: str, console: str) -> Callable[[F], F]:
    """The fields of `BrokerCommandOptions`; what most of them mean depends on the command."""

    def decorate(command: F) -> F:
        for add in (
            option("--console", is_flag=False, flag_value=DEFAULT_CONSOLE, metavar="[HOST:PORT]", help=console),
            option("--secure", is_flag=True, help=secure),
            option("--metrics", metavar="PORT", type=Whole(0, 65_535), help=metrics),
            option("--daemon", is_flag=True, help=daemon),
            option(
                "--first-id",
                metavar="ID",
                type=Whole(0, MAX_INT32 - MOST_BROKERS),
                default=0,
                help="The node.id of the first broker of --brokers; the others count up. For clusters of several "
                "machines.",
            ),
            option("--brokers", metavar="N|auto", type=BrokerCount(1, MOST_BROKERS), help=brokers),
            option(
                "--data",
                type=NEW_FOLDER,
                metavar="DIR",
                help="The data directory (log.dirs).  [default: ./data]",
                section="Configuration",
            ),
            option(
                "--listen",
                metavar="HOST:PORT",
                help=f"The address of the listener. Port 0 takes a free port.  [default: {DEFAULT_LISTEN}]",
                section="Configuration",
            ),
            option(
                "--set",
                "settings",
                metavar="KEY=VALUE",
                multiple=True,
                help="Set one config, which overrides the file; repeatable.",
                section="Configuration",
            ),
            option(
                "--config",
                type=FILE,
                help="A file in the format of Kafka's server.properties.",
                section="Configuration",
            ),
        ):
            command = add(command)
        return command

    return decorate


def load_config(
    config: Path | None = None,
    settings: tuple[str, ...] = (),
    listen: str | None = None,
    data: Path | None = None,
    protocol: str = DEFAULT_PROTOCOL,
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
        properties["listeners"] = f"{protocol}://{listen}"
    if data is not None:
        for key in DATA_KEYS:
            properties.pop(key, None)
        properties["log.dirs"] = str(data.absolute())
    properties |= overrides
    if any(name.startswith("config.providers") for name in properties):
        from barnabas.cli.common.values.placeholders import find_value
        from barnabas.model.config.placeholders import resolve

        properties = resolve(properties, find_value)
    return BrokerConfig.load(properties)
