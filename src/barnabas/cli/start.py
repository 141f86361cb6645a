"""`barnabas start`: run a broker, in this terminal or in the background.

Only this module and what it needs is imported before the broker listens; see `cli/main` for why.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from barnabas import __version__
from barnabas.cli.broker_options import (
    brokers_option,
    config_option,
    data_option,
    listen_option,
    load_config,
    set_option,
)
from barnabas.cli.help import Command, option

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from barnabas.broker.app import ReadyInfo
    from barnabas.model.config.broker import BrokerConfig

LOG_FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"


@click.command(
    cls=Command,
    examples=[
        ("listen on localhost:9092 and keep data in ./data", "barnabas start"),
        ("with the settings of a Kafka broker", "barnabas start --config server.properties"),
        ("another place, another port", "barnabas start --data /var/lib/barnabas --listen localhost:19092"),
        ("any port that is free; the ready line names it", "barnabas start --listen localhost:0"),
        ("any setting of Kafka's, by name", "barnabas start --set num.partitions=6 --set log.retention.hours=24"),
        ("a cluster of three on this machine, on ports 9092 to 9094", "barnabas start --brokers 3"),
        ("in the background", "barnabas start --daemon    # ends with: barnabas stop"),
    ],
)
@config_option
@set_option
@listen_option
@data_option
@brokers_option(
    "Run a cluster of N brokers on this machine: ports count up from that of --listen, data is in DIR/0, DIR/1 "
    "and so on."
)
@option(
    "--daemon",
    is_flag=True,
    help="Run in the background: return when the broker is ready, print its pid; "
    "its log is DIR/barnabas.log, its pid file DIR/barnabas.pid.",
)
def command(
    config: Path | None,
    settings: tuple[str, ...],
    listen: str | None,
    data: Path | None,
    brokers: int | None,
    daemon: bool,
) -> None:
    """Run a broker. Kafka's clients use it as they use Kafka.

    It runs until SIGTERM or Ctrl-C, then stops cleanly. Configuration has Kafka's names. Without --config, it listens
    on localhost only and keeps data in ./data; --config brings Kafka's own defaults.
    """
    if brokers is not None:
        from barnabas.cli import several

        wanted = several.arguments(brokers, config, settings, listen, data)
        if not daemon:
            sys.exit(several.run(wanted))
        _start_all_in_background(wanted)
        return
    broker_config = load_config(config, settings, listen, data)
    if daemon:
        _start_in_background(["start", *_as_words(config, settings, listen, data)], broker_config.log_dirs[0])
        return
    sys.exit(run(broker_config))


def _start_all_in_background(brokers: Sequence[tuple[Path, list[str]]]) -> None:
    """Start one broker after the other; where one cannot start, those that this command has started end again."""
    from barnabas.cli import service, several

    begun: list[Path] = []
    try:
        for folder, words in brokers:
            _start_in_background(words, folder)
            begun.append(folder)
    except BaseException:
        for folder in begun:
            service.stop(folder, several.STOP_SECONDS)
        raise


def _start_in_background(words: list[str], data: Path) -> None:
    from barnabas.cli import service

    process, ready = service.start_in_background(words, data)
    click.echo(ready)
    click.echo(f"It is process {process.pid}; its log is {data / service.LOG_FILE}")


def _as_words(config: Path | None, settings: tuple[str, ...], listen: str | None, data: Path | None) -> list[str]:
    words: list[str] = []
    for name, value in (("--config", config), ("--listen", listen), ("--data", data)):
        if value is not None:
            words += [name, str(value)]
    for setting in settings:
        words += ["--set", setting]
    return words


def run(config: BrokerConfig) -> int:
    """Run the broker in this process; returns its exit code.

    What is loaded stays until the end, so the garbage collector need not look at it: not while it is loaded, and not
    in any later collection.
    """
    import gc

    gc.disable()
    try:
        return _run(config)
    finally:
        gc.enable()


def _run(config: BrokerConfig) -> int:
    import logging

    from barnabas.broker import app, collector, log_lines
    from barnabas.cli import service

    log_lines.write_to_stderr(LOG_FORMAT)
    for warning in config.warnings:
        logging.getLogger(__name__).warning("%s", warning)

    def on_ready(info: ReadyInfo) -> None:
        collector.take_charge()
        try:
            service.write_pid(config.log_dirs[0])
        except OSError as error:
            logging.getLogger(__name__).warning("`barnabas stop` will not find this broker: %s", error)
        line = ready_line(info)
        click.echo(line)
        sys.stdout.flush()
        service.tell_starter(line)

    try:
        return app.run(config, on_ready)
    finally:
        service.remove_pid(config.log_dirs[0])


def ready_line(info: ReadyInfo) -> str:
    """One line for people and for scripts: where, what, how fast."""
    listeners = ", ".join(f"{_host(listener.host)}:{listener.port}" for listener in info.listeners)
    directories = ", ".join(str(directory) for directory in info.log_dirs)
    return (
        f"Barnabas {__version__} is ready on {listeners}; data in {directories} ({info.summary}); "
        f"started in {info.seconds:.2f} s"
    )


def _host(host: str) -> str:
    if not host:
        return "*"
    return f"[{host}]" if ":" in host else host
