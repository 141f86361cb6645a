"""What a secured cluster on this machine consists of: its folder, its brokers, and the hosts of their certificates."""

from __future__ import annotations

import socket
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import click

from barnabas.cli.common.broker_options import DEFAULT_DATA, DEFAULT_LISTEN, SECURED_SUFFIX
from barnabas.cli.common.failures import Failed
from barnabas.cli.start.several import METADATA, addresses
from barnabas.model.errors import ConfigError
from barnabas.net.authority import host_of_certificate

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

LOOPBACK: Final = ("localhost", "127.0.0.1", "::1")


@dataclass(frozen=True, slots=True)
class PlannedBroker:
    """A broker: where it listens, and where its files are."""

    number: int | None
    """Among several; None if it is alone."""
    listen: str
    data: Path

    @property
    def _suffix(self) -> str:
        return "" if self.number is None else f"-{self.number}"

    @property
    def server_file(self) -> str:
        """The name of its settings."""
        return f"server{self._suffix}.properties"

    @property
    def keystore(self) -> str:
        """The name of the file with its key and certificate."""
        return f"broker{self._suffix}.pem"


@dataclass(frozen=True, slots=True)
class SecurePlan:
    """A cluster whose brokers are secured alike."""

    folder: Path
    """Absolute."""
    brokers: tuple[PlannedBroker, ...]
    hosts: tuple[str, ...]
    """What certificates of brokers name."""
    metadata_store: Path | None
    """Shared by several brokers; a broker alone has its own beside its data."""
    zookeeper: str | None = None

    @property
    def first_server_file(self) -> Path:
        """The settings of the first broker."""
        return self.folder / self.brokers[0].server_file

    @property
    def is_several(self) -> bool:
        """Whether the brokers are numbered."""
        return self.brokers[0].number is not None

    @property
    def bootstrap_servers(self) -> str:
        """What clients are given."""
        return ",".join(broker.listen for broker in self.brokers)


def make_plan(
    *,
    data: Path | None = None,
    listen: str | None = None,
    count: int | None = None,
    hosts: Iterable[str] = (),
    folder: Path | None = None,
    zookeeper: str | None = None,
) -> SecurePlan:
    """The cluster that the options mean, with `count` brokers below the data directory, or one in it."""
    directory = (data or DEFAULT_DATA).absolute()
    place = (folder or directory.with_name(f"{directory.name}{SECURED_SUFFIX}")).absolute()
    for path in (directory, place):
        _check_path(path)
    host, _, port = (listen or DEFAULT_LISTEN).rpartition(":")
    if not port.isdecimal():
        raise click.UsageError(f"--listen {listen} is not of the form HOST:PORT.")
    named = [*LOOPBACK, *_guessed(), *filter(None, (host,)), *hosts]
    if count is None:
        brokers: tuple[PlannedBroker, ...] = (PlannedBroker(None, f"{host}:{port}", directory),)
    else:
        pairs = enumerate(addresses(count, listen))
        brokers = tuple(PlannedBroker(number, each, directory / str(number)) for number, each in pairs)
    return SecurePlan(
        folder=place,
        brokers=brokers,
        hosts=tuple(dict.fromkeys(map(host_of_certificate, named))),
        metadata_store=None if count is None or zookeeper else directory / METADATA,
        zookeeper=zookeeper,
    )


def _guessed() -> list[str]:
    """The name of this machine, if a certificate can have it."""
    name = socket.gethostname()
    try:
        return [host_of_certificate(name)]
    except ConfigError:
        return []


def _check_path(path: Path) -> None:
    """Settings are text, and log.dirs is a list with commas."""
    try:
        str(path).encode()
    except UnicodeEncodeError:
        raise Failed(f"{str(path)!a} is not a name in UTF-8, and cannot stand in a properties file.") from None
    if "," in str(path) or str(path) != str(path).strip():
        raise Failed(f"{path} has a comma or a blank at its end, and cannot stand in log.dirs: choose another --data.")
