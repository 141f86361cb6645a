"""`barnabas start`: run a broker, in this terminal or in the background.

Only this module and what it needs is imported before the broker listens; see `cli/main` for why.
"""

from __future__ import annotations

import json
import os
import sys
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from barnabas import __version__
from barnabas.cli.common.broker_options import DEFAULT_CONSOLE, SECURED_SUFFIX, BrokerCommandOptions, broker_options
from barnabas.cli.common.help import Command
from barnabas.cli.common.log_format import LOG_FORMAT
from barnabas.cli.common.options import takes
from barnabas.cli.common.values.addresses import check_listen_address
from barnabas.model.environment import LOG_PREFIX

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
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
        ("a broker for each core of this machine", "barnabas start --brokers auto"),
        ("in the background", "barnabas start --daemon    # ends with: barnabas stop"),
        ("with TLS, a login and permissions; it says what to type next", "barnabas start --secure"),
        ("with the web console, on http://localhost:8080", "barnabas start --console"),
        ("with figures for Prometheus at http://localhost:9404/metrics", "barnabas start --metrics 9404"),
    ],
)
@broker_options(
    brokers="Run N brokers as one cluster on this machine. Their ports count up from that of --listen; their data is "
    "in DIR/0, DIR/1 and so on. One that ends is not started again until `barnabas restart` asks for it. With auto "
    "there is one for each core at the first start, and as many later; "
    "broker.rack is the name of this host unless it is set.",
    daemon="Run in the background. The command returns when the broker is ready, and prints its pid. "
    "The log is DIR/barnabas.log, the pid file DIR/barnabas.pid.",
    secure="Encrypt, ask for a login, and refuse what no rule allows. On first use certificates, users and settings "
    "are made as by `barnabas security init`, in DIR.security; later they are used as they are.",
    console=f"Run the web console beside the broker, on this address.  [default: {DEFAULT_CONSOLE}]",
    metrics="Serve metrics for Prometheus and a health check over HTTP on this port of localhost (metrics.listener). "
    "With --brokers, ports count up.",
)
@takes(BrokerCommandOptions)
def command(options: BrokerCommandOptions) -> None:
    """Run a broker. Kafka's clients use it as they use Kafka.

    It runs until SIGTERM or Ctrl-C, then stops cleanly. Configs have Kafka's names. Without --config, the broker
    listens on localhost only and keeps its data in ./data. With --config, Kafka's defaults apply.
    """
    if options.console is not None:
        check_listen_address(options.console, "--console")
    options.warn_of_secrets()
    options = counted(options)
    secured = secure(options) if options.secure else None
    pushed = _telemetry_settings(options)
    wired = replace(options, settings=(*pushed, *options.settings))
    if options.brokers is not None:
        from barnabas.cli.start import several

        wanted = arguments(wired, secured)
        if not several.root(options.data).exists():  # or it would be made for settings that are wrong
            check(wanted[0][1])
        if secured is None and options.config is None:
            _warn_if_open(several.root(options.data))
        if options.daemon and options.console:
            raise click.UsageError(
                "--console ends with its command: start `barnabas console` beside brokers in the background."
            )
        if options.daemon:
            start_all_in_background(wanted)
        if secured is not None:
            click.echo(_next_steps(secured, secured.bootstrap_servers))
            sys.stdout.flush()
        if not options.daemon:
            console = _console_of_several(options, secured, telemetry=bool(pushed))
            sys.exit(several.run(wanted, admin_file(secured), console, first_id=options.first_id))
        return
    broker_config = wired.load(None if secured is None else secured.first_server_file)
    if secured is None and options.config is None:
        _warn_if_open(broker_config.log_dirs[0])
    if options.daemon:
        start_in_background(["start", *_as_words(options)], broker_config.log_dirs[0])
        return
    sys.exit(run(broker_config, secured, options.console, telemetry=bool(pushed)))


def counted(options: BrokerCommandOptions) -> BrokerCommandOptions:
    """The options with a number of brokers for `auto`."""
    if options.brokers is None:
        return options
    from barnabas.cli.start import several

    count = several.count_brokers(options.brokers, options.data)
    return replace(options, brokers=count, settings=(*several.rack_setting(options), *options.settings))


def arguments(options: BrokerCommandOptions, secured: SecurePlan | None) -> list[tuple[Path, list[str]]]:
    """Folder and words of each broker's `barnabas start`; the number of brokers is known."""
    if options.brokers is None:
        directory = options.load(None if secured is None else secured.first_server_file).log_dirs[0]
        return [(directory, ["start", *_as_words(options)])]
    from barnabas.cli.start import several

    return several.arguments(
        options.brokers,
        options.config,
        options.settings,
        options.listen,
        options.data,
        secured,
        metrics=options.metrics,
        first_id=options.first_id,
    )


def reached(options: BrokerCommandOptions) -> str:
    """Where clients on this machine reach the brokers that are started by these options."""
    from barnabas.cli.start import several

    found = several.addresses(options.brokers or 1, options.listen)
    return ",".join(f"localhost{each}" if each.startswith(":") else each for each in found)


def check(words: list[str]) -> None:
    """Raise what a `barnabas start` with these words would say of its settings."""
    with command.make_context("start", words[1:]) as context:
        BrokerCommandOptions(**context.params).load()


def _telemetry_settings(options: BrokerCommandOptions) -> tuple[str, ...]:
    """What makes brokers push metrics of clients to the console that is started with them."""
    if options.console is None:
        return ()
    from barnabas.cli.common.values.files import read_properties
    from barnabas.cli.start import console_child
    from barnabas.model.config.properties import parse_overrides

    given = {**({} if options.config is None else read_properties(options.config)), **parse_overrides(options.settings)}
    return console_child.telemetry_settings(options.console, given.keys())


def _console_of_several(
    options: BrokerCommandOptions, secured: SecurePlan | None, *, telemetry: bool
) -> list[str] | None:
    """The words of the console of several brokers, if there shall be one."""
    if options.console is None or options.brokers is None:
        return None
    from barnabas.cli.start import console_child, several

    servers = ",".join(several.addresses(options.brokers, options.listen))
    folder = several.root(options.data)
    return console_child.arguments(
        options.console,
        servers,
        folder,
        admin_file(secured),
        telemetry=telemetry,
        start_again=several.restart_command(folder, options.brokers),
        brokers=range(options.first_id, options.first_id + options.brokers),
    )


def admin_file(secured: SecurePlan | None) -> Path | None:
    """The properties of an administrator of a secured cluster."""
    from barnabas.cli.security.properties import ADMIN

    return None if secured is None else secured.folder / f"{ADMIN}.properties"


def secure(options: BrokerCommandOptions) -> SecurePlan:
    """Have the files and users of a secured cluster, and say if they had to be made."""
    from barnabas.cli.security import cluster
    from barnabas.cli.security.plan import make_plan

    plan = make_plan(data=options.data, listen=options.listen, count=options.brokers)
    if cluster.secure(plan).files:
        click.echo(f"Made certificates, users and settings in {plan.folder}.")
    return plan


def _warn_if_open(directory: Path) -> None:
    """Say that a cluster that was secured is about to be opened to everybody."""
    folder = directory.with_name(f"{directory.name}{SECURED_SUFFIX}")
    if folder.is_dir():
        click.echo(
            f"Warning: {folder} has certificates and users for this data, but the broker starts without --secure. "
            "Whoever reaches it may do everything.",
            err=True,
        )


def _next_steps(plan: SecurePlan, bootstrap_servers: str) -> str:
    from barnabas.cli.security.next_steps import next_steps

    return next_steps(plan.folder, bootstrap_servers)


def start_all_in_background(
    brokers: Sequence[tuple[Path, list[str]]], given_up: Callable[[], bool] = lambda: False
) -> None:
    """Start one broker after the other, until that is `given_up`.

    Where one cannot start, those that this command has started end again.
    """
    from barnabas.cli.common.failures import Failed
    from barnabas.cli.start import service
    from barnabas.cli.start.broker_child import STOP_SECONDS

    begun: list[Path] = []
    try:
        for folder, words in brokers:
            if given_up():
                return
            start_in_background(words, folder)
            begun.append(folder)
    except BaseException as error:
        for _, result in service.stop_together(begun, STOP_SECONDS):
            if isinstance(result, Failed):
                raise result from error
        raise


def start_in_background(words: list[str], data: Path) -> None:
    """Start a broker, and say when it is ready; raises Failed if it is not. That nobody reads it changes nothing."""
    from barnabas.cli.start import service

    process, ready = service.start_in_background(words, data)
    with suppress(OSError):
        click.echo(ready)
        click.echo(f"It is process {process.pid}; its log is {data / service.LOG_FILE}")


def _as_words(options: BrokerCommandOptions) -> list[str]:
    words: list[str] = []
    for name, value in (("--config", options.config), ("--listen", options.listen), ("--data", options.data)):
        if value is not None:
            words += [name, str(value)]
    for setting in options.settings:
        words += ["--set", setting]
    words += [] if options.console is None else ["--console", options.console]
    if options.metrics is not None:
        words += ["--metrics", str(options.metrics)]
    return [*words, "--secure"] if options.secure else words


def run(
    config: BrokerConfig, secured: SecurePlan | None = None, console: str | None = None, *, telemetry: bool = False
) -> int:
    """Run the broker in this process; returns its exit code.

    What is loaded stays until the end, so the garbage collector need not look at it: not while it is loaded, and not
    in any later collection.
    """
    import gc

    gc.disable()
    try:
        return _run(config, secured, console, telemetry=telemetry)
    finally:
        gc.enable()


def _run(config: BrokerConfig, secured: SecurePlan | None, console: str | None, *, telemetry: bool) -> int:
    import logging

    from barnabas.broker import app, collector, log_format
    from barnabas.cli.common.remedies import WordedRemedies
    from barnabas.cli.start import console_child, service

    log_format.write_to_stderr(os.environ.pop(LOG_PREFIX, "") + LOG_FORMAT, WordedRemedies())
    is_one_of_several = service.stop_with_starter()
    for warning in config.warnings:
        logging.getLogger(__name__).warning("%s", warning)

    def on_ready(info: ReadyInfo) -> None:
        collector.tune_process()
        try:
            service.write_pid(config.log_dirs[0])
        except OSError as error:
            logging.getLogger(__name__).warning("`barnabas stop` will not find this broker: %s", error)
        if is_one_of_several:
            service.tell_starter(json.dumps(_report(info)))
            return
        text = ready_line(info)
        if secured is not None:
            text += f"\n{_next_steps(secured, address_of_clients(info, secured=True))}"
        click.echo(text)
        sys.stdout.flush()
        service.tell_starter(text)
        if console is not None:
            servers = address_of_clients(info, secured=secured is not None)
            folder, login = config.log_dirs[0], admin_file(secured)
            child.start(console_child.arguments(console, servers, folder, login, telemetry=telemetry))

    with console_child.console_child() as child:
        try:
            return app.run(config, on_ready)
        finally:
            service.remove_pid(config.log_dirs[0])


def ready_line(info: ReadyInfo) -> str:
    """One line for people and for scripts: where, what, how fast."""
    directories = ", ".join(str(directory) for directory in info.log_dirs)
    return (
        f"Barnabas {__version__} is ready on {_listeners(info)}; data in {directories} ({info.summary}); "
        f"started in {info.seconds:.2f} s{_metrics(info)}"
    )


def address_of_clients(info: ReadyInfo, *, secured: bool) -> str:
    """The first listener, or of a secured cluster the first one for the properties that were made: TLS and a login."""
    fitting = (each for each in info.listeners if not secured or (each.uses_tls and each.uses_sasl))
    listener = next(fitting, info.listeners[0])
    return f"{_host(listener.host)}:{listener.port}"


def _report(info: ReadyInfo) -> dict[str, Any]:
    """What the command that runs several brokers is told of one."""
    directories = ", ".join(map(str, info.log_dirs))
    return {"listeners": _listeners(info), "data": directories, "metrics": info.metrics_port}


def _metrics(info: ReadyInfo) -> str:
    return "" if info.metrics_port is None else f"; metrics on port {info.metrics_port}"


def _listeners(info: ReadyInfo) -> str:
    return ", ".join(f"{_host(listener.host)}:{listener.port}" for listener in info.listeners)


def _host(host: str) -> str:
    if not host:
        return "*"
    return f"[{host}]" if ":" in host else host
