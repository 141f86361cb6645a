"""The scripts around servers: their own flags are few, and not like those of the tools."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple, NoReturn

import click

from barnabas.cli.common.failures import Failed
from barnabas.cli.common.output import remark
from barnabas.cli.shims import running

if TYPE_CHECKING:
    from collections.abc import Sequence

BROKER: Final = "broker"
ZOOKEEPER: Final = "zookeeper"
STOP_SECONDS: Final = 60.0
_WITH_VALUE: Final = ("-name",)
_WITHOUT: Final = ("-loggc",)
"""Flags for the JVM."""


class ServerWords(NamedTuple):
    """What stands after kafka-server-start or zookeeper-server-start."""

    file: Path
    daemon: bool
    overrides: list[str]


def parse(script: str, given: Sequence[str]) -> ServerWords:
    """The words of a start script; raises Failed."""
    file: Path | None = None
    daemon = False
    overrides: list[str] = []
    rest = iter(given)
    for word in rest:
        if word == "-daemon":
            daemon = True
        elif word in _WITH_VALUE:
            next(rest, None)
        elif word == "--override":
            overrides.append(next(rest, ""))
        elif word in _WITHOUT:
            continue
        elif word.startswith("-") or file is not None:
            raise Failed(f"{script} does not know {word}: {script} [-daemon] FILE [--override KEY=VALUE]...")
        else:
            file = Path(word)
    if file is None:
        raise Failed(f"{script} needs a file: {script} [-daemon] FILE [--override KEY=VALUE]...")
    return ServerWords(file, daemon, overrides)


def start_broker(folder: Path, given: Sequence[str]) -> list[str]:
    """kafka-server-start: the words for `barnabas`, after the data directory has been noted."""
    from barnabas.cli.common.broker_options import load_config

    words = parse("kafka-server-start", given)
    _remember(folder, BROKER, load_config(words.file, tuple(words.overrides)).log_dirs[0])
    settings = [part for override in words.overrides for part in ("--set", override)]
    return ["start", "--config", str(words.file), *settings, *(["--daemon"] if words.daemon else [])]


def start_zookeeper(folder: Path, given: Sequence[str]) -> list[str]:
    """zookeeper-server-start."""
    from barnabas.cli.zookeeper.command import read_settings

    words = parse("zookeeper-server-start", given)
    _remember(folder, ZOOKEEPER, read_settings(words.file).data)
    return ["zookeeper", "start", str(words.file), *(["--daemon"] if words.daemon else [])]


def _remember(folder: Path, kind: str, directory: Path) -> None:
    try:
        running.remember(folder, kind, directory)
    except OSError as error:
        remark(f"The stop script will not find this server: {error.filename}: {error.strerror}.")


def stop_brokers(folder: Path) -> None:
    """kafka-server-stop: ends all brokers that scripts of this folder started. Raises Failed when there is none."""
    from barnabas.cli.start import service

    results = list(service.stop_together(running.started(folder, BROKER), STOP_SECONDS))
    stopped = [(data, result) for data, result in results if not isinstance(result, Failed)]
    failures = [str(result) for _, result in results if isinstance(result, Failed)]
    if stopped or not failures:
        _report_stopped(stopped, "broker", "No kafka server to stop.")
    if failures:
        raise Failed("\n".join(failures))


def stop_zookeepers(folder: Path) -> None:
    """zookeeper-server-stop."""
    from barnabas.cli.zookeeper.command import stop_server

    stopped = [(data, stop_server(data)) for data in running.started(folder, ZOOKEEPER)]
    _report_stopped(stopped, "ZooKeeper", "No zookeeper server to stop.")


def _report_stopped(stopped: list[tuple[Path, int | None]], what: str, none: str) -> None:
    found = [(data, pid) for data, pid in stopped if pid is not None]
    for data, pid in found:
        click.echo(f"Stopped the {what} on {data} (process {pid}).")
    if not found:
        raise Failed(none)


def zookeeper_shell(given: Sequence[str]) -> NoReturn:
    """zookeeper-shell HOST:PORT [COMMAND]: ZooKeeper's own shell takes the place of this process. Raises Failed."""
    from barnabas.cli.zookeeper.servers import find_server

    if not given or given[0].startswith("-"):
        raise Failed("zookeeper-shell needs an address: zookeeper-shell HOST:PORT[/PATH] [COMMAND]")
    words = find_server().shell(given)
    os.execv(words[0], words)


def storage(given: Sequence[str]) -> None:
    """kafka-storage: a new id can be had; to format is not needed, and no error."""
    from uuid import uuid4

    match given:
        case ["random-uuid", *_]:
            from barnabas.model.ids import uuid_to_text

            click.echo(uuid_to_text(uuid4()))
        case ["format" | "info", *_]:
            click.echo("Nothing to format: a broker prepares its directories when it first starts.")
        case _:
            raise Failed("kafka-storage knows random-uuid, format and info.")
