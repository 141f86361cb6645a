"""`barnabas zookeeper`: a server for development, in this terminal or in the background.

In the foreground the server takes the place of this process, so that signals reach it as they are. A pid file in its
data directory is how `stop` finds it; the process is asked for its command line first, so a pid that the system has
given to another process since harms nobody.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

import click

from barnabas.cli.common.failures import Failed
from barnabas.cli.common.help import Command, CommandGroup, option
from barnabas.cli.common.options import Options, takes
from barnabas.cli.common.values.files import FILE, NEW_FOLDER, read_properties
from barnabas.cli.common.values.numbers import Whole
from barnabas.cli.zookeeper.servers import MAIN_CLASS, find_server

DEFAULT_PORT: Final = 2181
DEFAULT_DATA: Final = Path("zookeeper")
CONFIG_FILE: Final = "zookeeper.properties"
PID_FILE: Final = "zookeeper.pid"
LOG_FILE: Final = "zookeeper.log"
START_SECONDS: Final = 60.0
STOP_SECONDS: Final = 30.0


class ZooKeeperSettings(NamedTuple):
    """What a file of ZooKeeper's says about where it is."""

    file: Path
    data: Path
    host: str
    port: int

    @property
    def pid_file(self) -> Path:
        """Where the server's process id is kept."""
        return self.data / PID_FILE


def read_settings(file: Path) -> ZooKeeperSettings:
    """The settings of a file; raises Failed when ZooKeeper could not use it."""
    properties = read_properties(file)
    data = properties.get("dataDir", "").strip()
    port = (properties.get("clientPort") or properties.get("secureClientPort") or "").strip()
    if not data:
        raise Failed(f"{file} has no dataDir, the directory for ZooKeeper's data.")
    if not port.isdecimal():
        raise Failed(
            f"{file} has no clientPort, the port on which ZooKeeper listens; usual is clientPort={DEFAULT_PORT}."
        )
    host = properties.get("clientPortAddress", "").strip()
    return ZooKeeperSettings(
        file.absolute(), Path(data), host if host and host != "0.0.0.0" else "localhost", int(port)
    )


def default_settings(data: Path, port: int) -> ZooKeeperSettings:
    """Settings for a machine of one's own, written into the data directory, which is where the server reads them."""
    data = data.absolute()
    data.mkdir(parents=True, exist_ok=True)
    file = data / CONFIG_FILE
    file.write_text(
        f"dataDir={data}\nclientPort={port}\nclientPortAddress=localhost\nmaxClientCnxns=0\nadmin.enableServer=false\n",
        encoding="utf-8",
    )
    return ZooKeeperSettings(file, data, "localhost", port)


@dataclass(frozen=True, kw_only=True)
class StopOptions(Options):
    """The options of `barnabas zookeeper stop`."""

    file: Path | None
    data: Path | None

    def check(self) -> None:
        """Refuse two data directories."""
        if self.file is not None and self.data is not None:
            raise click.UsageError("FILE has the data directory: leave out --data.")


@dataclass(frozen=True, kw_only=True)
class StartOptions(Options):
    """The options of `barnabas zookeeper start`."""

    file: Path | None
    data: Path | None
    port: int | None
    daemon: bool

    def check(self) -> None:
        """Refuse settings beside a file that has them."""
        if self.file is not None and (self.data is not None or self.port is not None):
            raise click.UsageError("FILE has the data directory and the port: leave out --data and --port.")

    def read(self) -> ZooKeeperSettings:
        """The settings of FILE, or those for a machine of one's own."""
        if self.file is not None:
            return read_settings(self.file)
        return default_settings(self.data or DEFAULT_DATA, self.port or DEFAULT_PORT)


@click.group(
    "zookeeper",
    cls=CommandGroup,
    examples=[
        ("on localhost:2181, data in ./zookeeper", "barnabas zookeeper start"),
        ("with Kafka's file, in the background", "barnabas zookeeper start config/zookeeper.properties --daemon"),
        ("and stop it", "barnabas zookeeper stop config/zookeeper.properties"),
    ],
)
@takes(Options)
def command(options: Options) -> None:
    """Run a ZooKeeper for development, if one can be found on this machine."""


@command.command(
    "start",
    cls=Command,
    short_help="Run a ZooKeeper, here or in the background.",
    examples=[
        ("on localhost:2181, data in ./zookeeper", "barnabas zookeeper start"),
        ("with Kafka's file", "barnabas zookeeper start config/zookeeper.properties"),
        (
            "from a release that you have unpacked",
            "ZOOKEEPER_HOME=~/apache-zookeeper-3.9.5-bin barnabas zookeeper start",
        ),
    ],
)
@click.argument("file", required=False, type=FILE)
@option(
    "--data",
    type=NEW_FOLDER,
    metavar="DIR",
    help="The data directory, if FILE is not given.  [default: ./zookeeper]",
)
@option("--port", type=Whole(1, 65535), metavar="N", help="The port, if FILE is not given.  [default: 2181]")
@option(
    "--daemon", is_flag=True, help="Run in the background, and return when it listens. The log is DIR/zookeeper.log."
)
@takes(StartOptions)
def start(options: StartOptions) -> None:
    """Run a ZooKeeper until SIGTERM or Ctrl-C; FILE has the format of Kafka's zookeeper.properties.

    The server comes from ZOOKEEPER_HOME, else from the system's package, else from the Python package pyspark. It needs
    Java. It is a single server, for development and tests.
    """
    server = find_server()
    settings = options.read()
    words = server.command(settings.file)
    if _listens(settings):
        raise Failed(f"Port {settings.port} is taken, perhaps by another ZooKeeper: stop it, or take another port.")
    settings.data.mkdir(parents=True, exist_ok=True)
    click.echo(f"ZooKeeper of {server.origin} on {settings.host}:{settings.port}; data in {settings.data}")
    sys.stdout.flush()
    if options.daemon:
        _start_in_background(words, settings)
        return
    settings.pid_file.write_text(f"{os.getpid()}\n", encoding="ascii")
    os.execv(words[0], words)


def _start_in_background(words: list[str], settings: ZooKeeperSettings) -> None:
    log = settings.data / LOG_FILE
    with log.open("ab") as output:
        child = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True)
    settings.pid_file.write_text(f"{child.pid}\n", encoding="ascii")
    deadline = time.monotonic() + START_SECONDS
    while not _listens(settings):
        if child.poll() is not None:
            raise Failed(f"ZooKeeper ended with code {child.returncode} before it listened: see {log}.")
        if time.monotonic() > deadline:
            child.kill()
            raise Failed(f"ZooKeeper did not listen within {START_SECONDS:g} s, and was ended: see {log}.")
        time.sleep(0.05)
    click.echo(f"It is process {child.pid}; its log is {log}")


def _listens(settings: ZooKeeperSettings) -> bool:
    try:
        socket.create_connection((settings.host, settings.port), 1).close()
    except OSError:
        return False
    return True


@command.command(
    "stop",
    cls=Command,
    short_help="Stop a ZooKeeper that runs in the background.",
    examples=[
        ("the one with its data in ./zookeeper", "barnabas zookeeper stop"),
        ("the one of a file", "barnabas zookeeper stop config/zookeeper.properties"),
    ],
)
@click.argument("file", required=False, type=FILE)
@option(
    "--data",
    type=NEW_FOLDER,
    metavar="DIR",
    help="The data directory, if FILE is not given.  [default: ./zookeeper]",
)
@takes(StopOptions)
def stop(options: StopOptions) -> None:
    """Stop a ZooKeeper that `barnabas zookeeper start` has started, and wait until it has ended."""
    directory = read_settings(options.file).data if options.file else (options.data or DEFAULT_DATA)
    pid = stop_server(directory)
    if pid is None:
        click.echo(f"No ZooKeeper is running on {directory}.")
    else:
        click.echo(f"Stopped the ZooKeeper on {directory} (process {pid}).")


def stop_server(data: Path) -> int | None:
    """End the server of a data directory by SIGTERM; returns its pid, None when none was running."""
    file = data / PID_FILE
    try:
        pid = int(file.read_text(encoding="ascii"))
    except (FileNotFoundError, NotADirectoryError, ValueError):
        return None
    if not _is_zookeeper(pid):
        file.unlink(missing_ok=True)
        return None
    os.kill(pid, signal.SIGTERM)
    deadline = time.monotonic() + STOP_SECONDS
    while _is_zookeeper(pid):
        if time.monotonic() > deadline:
            raise Failed(f"ZooKeeper (process {pid}) did not end within {STOP_SECONDS:g} s; try `kill -9 {pid}`.")
        time.sleep(0.02)
    file.unlink(missing_ok=True)
    return pid


def _is_zookeeper(pid: int) -> bool:
    """Whether the process is there, has not ended, and is a ZooKeeper."""
    if sys.platform == "linux":
        with suppress(FileNotFoundError, ProcessLookupError):
            return MAIN_CLASS.encode() in Path(f"/proc/{pid}/cmdline").read_bytes()
        return False
    listed = subprocess.run(["ps", "-o", "command=", "-p", str(pid)], capture_output=True, text=True)
    return MAIN_CLASS in listed.stdout
