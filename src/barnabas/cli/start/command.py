"""`barnabas start`: run a broker, in this terminal or in the background.

Only this module and what it needs is imported before the broker listens; see `cli/main` for why.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from barnabas import __version__
from barnabas.cli.common.broker_options import BrokerCommandOptions, broker_options
from barnabas.cli.common.help import Command
from barnabas.cli.common.log_format import LOG_FORMAT
from barnabas.cli.common.options import takes

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from barnabas.broker.app import ReadyInfo
    from barnabas.cli.security.plan import SecurePlan
    from barnabas.model.config.broker import BrokerConfig


@click.command(
    cls=Command,
    examples=[
        ("listen on localhost:9092 and keep data in ./data", "barnabas start"),
        ("with the server.properties of a Kafka broker", "barnabas start --config server.properties"),
        (
            "with another data directory and another port",
            "barnabas start --data /var/lib/barnabas --listen localhost:19092",
        ),
        ("on any free port; the line that is printed names it", "barnabas start --listen localhost:0"),
        ("with some configs of Kafka", "barnabas start --set num.partitions=6 --set log.retention.hours=24"),
        ("three brokers as one cluster on this machine, on ports 9092 to 9094", "barnabas start --brokers 3"),
        ("in the background", "barnabas start --daemon    # ends with: barnabas stop"),
        ("with TLS, a login and permissions; it says what to type next", "barnabas start --secure"),
    ],
)
@broker_options(
    brokers="Run N brokers as one cluster on this machine. Their ports count up from that of --listen; their data is "
    "in DIR/0, DIR/1 and so on.",
    daemon="Run in the background. The command returns when the broker is ready, and prints its pid. "
    "The log is DIR/barnabas.log, the pid file DIR/barnabas.pid.",
    secure="Encrypt, ask for a login, and refuse what no rule allows. On first use certificates, users and settings "
    "are made as by `barnabas security init`, in DIR.security; later they are used as they are.",
)
@takes(BrokerCommandOptions)
def command(options: BrokerCommandOptions) -> None:
    """Run a broker. Kafka's clients use it as they use Kafka.

    It runs until SIGTERM or Ctrl-C, then stops cleanly. Configs have Kafka's names. Without --config, the broker
    listens on localhost only and keeps its data in ./data. With --config, Kafka's defaults apply.
    """
    secured = _secure(options) if options.secure else None
    if options.brokers is not None:
        from barnabas.cli.start import several

        wanted = several.arguments(
            options.brokers, options.config, options.settings, options.listen, options.data, secured
        )
        if options.daemon:
            _start_all_in_background(wanted)
        if secured is not None:
            click.echo(_next_steps(secured, secured.bootstrap_servers))
            sys.stdout.flush()
        if not options.daemon:
            sys.exit(several.run(wanted))
        return
    broker_config = options.load(None if secured is None else secured.first_server_file)
    if options.daemon:
        _start_in_background(["start", *_as_words(options)], broker_config.log_dirs[0])
        return
    sys.exit(run(broker_config, secured))


def _secure(options: BrokerCommandOptions) -> SecurePlan:
    """Have the files and users of a secured cluster, and say if they had to be made."""
    from barnabas.cli.security.cluster import secure
    from barnabas.cli.security.plan import make_plan

    plan = make_plan(data=options.data, listen=options.listen, count=options.brokers)
    if secure(plan).files:
        click.echo(f"Made certificates, users and settings in {plan.folder}.")
    return plan


def _next_steps(plan: SecurePlan, bootstrap_servers: str) -> str:
    from barnabas.cli.security.next_steps import next_steps

    return next_steps(plan.folder, bootstrap_servers)


def _start_all_in_background(brokers: Sequence[tuple[Path, list[str]]]) -> None:
    """Start one broker after the other; where one cannot start, those that this command has started end again."""
    from barnabas.cli.start import service, several

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
    from barnabas.cli.start import service

    process, ready = service.start_in_background(words, data)
    click.echo(ready)
    click.echo(f"It is process {process.pid}; its log is {data / service.LOG_FILE}")


def _as_words(options: BrokerCommandOptions) -> list[str]:
    words: list[str] = []
    for name, value in (("--config", options.config), ("--listen", options.listen), ("--data", options.data)):
        if value is not None:
            words += [name, str(value)]
    for setting in options.settings:
        words += ["--set", setting]
    return [*words, "--secure"] if options.secure else words


def run(config: BrokerConfig, secured: SecurePlan | None = None) -> int:
    """Run the broker in this process; returns its exit code.

    What is loaded stays until the end, so the garbage collector need not look at it: not while it is loaded, and not
    in any later collection.
    """
    import gc

    gc.disable()
    try:
        return _run(config, secured)
    finally:
        gc.enable()


def _run(config: BrokerConfig, secured: SecurePlan | None) -> int:
    import logging

    from barnabas.broker import app, collector, log_format
    from barnabas.cli.common.remedies import WordedRemedies
    from barnabas.cli.start import service

    log_format.write_to_stderr(LOG_FORMAT, WordedRemedies())
    for warning in config.warnings:
        logging.getLogger(__name__).warning("%s", warning)

    def on_ready(info: ReadyInfo) -> None:
        collector.tune_process()
        try:
            service.write_pid(config.log_dirs[0])
        except OSError as error:
            logging.getLogger(__name__).warning("`barnabas stop` will not find this broker: %s", error)
        text = ready_line(info)
        if secured is not None:
            text += f"\n{_next_steps(secured, _listeners(info))}"
        click.echo(text)
        sys.stdout.flush()
        service.tell_starter(text)

    try:
        return app.run(config, on_ready)
    finally:
        service.remove_pid(config.log_dirs[0])


def ready_line(info: ReadyInfo) -> str:
    """One line for people and for scripts: where, what, how fast."""
    directories = ", ".join(str(directory) for directory in info.log_dirs)
    return (
        f"Barnabas {__version__} is ready on {_listeners(info)}; data in {directories} ({info.summary}); "
        f"started in {info.seconds:.2f} s"
    )


def _listeners(info: ReadyInfo) -> str:
    return ", ".join(f"{_host(listener.host)}:{listener.port}" for listener in info.listeners)


def _host(host: str) -> str:
    if not host:
        return "*"
    return f"[{host}]" if ":" in host else host
