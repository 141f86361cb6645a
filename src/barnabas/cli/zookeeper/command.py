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
from pathlib import Path
from typing import Final, NamedTuple

import click

from barnabas.cli.failures import Failed
from barnabas.cli.files import read_properties
from barnabas.cli.help import Command, Group, option
from barnabas.cli.numbers import Whole
from barnabas.cli.zookeeper.servers import MAIN_CLASS, find_server

DEFAULT_PORT: Final = 2181
DEFAULT_DATA: Final = Path("zookeeper")
CONFIG_FILE: Final = "zookeeper.properties"
PID_FILE: Final = "zookeeper.pid"
LOG_FILE: Final = "zookeeper.log"
START_SECONDS: Final = 60.0
STOP_SECONDS: Final = 30.0


class Settings(NamedTuple):
    """What a file of ZooKeeper's says about where it is."""

    file: Path
    data: Path
    host: str
    port: int

    @property
    def pid_file(self) -> Path:
        """Where the server's process id is kept."""
        return self.data / PID_FILE


def read_settings(file: Path) -> Settings:
    """The settings of a file; raises Failed when ZooKeeper could not use it."""
    properties = read_properties(file)
    data = properties.get("dataDir", "").strip()
    port = (properties.get("clientPort") or properties.get("secureClientPort") or "").strip()
    if not data:
        raise Failed(f"{file} has no dataDir: where is ZooKeeper to keep its data?")
    if not port.isdecimal():
        raise Failed(f"{file} has no clientPort: where is ZooKeeper to listen? Usual is clientPort={DEFAULT_PORT}.")
    host = properties.get("clientPortAddress", "").strip()
    return Settings(file.absolute(), Path(data), host if host and host != "0.0.0.0" else "localhost", int(port))


def default_settings(data: Path, port: int) -> Settings:
    """Settings for a machine of one's own, written into the data directory, which is where the server reads them."""
    data = data.absolute()
    data.mkdir(parents=True, exist_ok=True)
    file = data / CONFIG_FILE
    file.write_text(
        f"dataDir={data}\nclientPort={port}\nclientPortAddress=localhost\nmaxClientCnxns=0\nadmin.enableServer=false\n",
        encoding="utf-8",
    )
    return Settings(file, data, "localhost", port)


@click.group(
    "zookeeper",
    cls=Group,
    examples=[
        ("on localhost:2181, data in ./zookeeper", "barnabas zookeeper start"),
        ("with Kafka's file, in the background", "barnabas zookeeper start config/zookeeper.properties --daemon"),
        ("and its end", "barnabas zookeeper stop config/zookeeper.properties"),
    ],
)
def command() -> None:
    """Run a ZooKeeper for development, if one can be found on this machine."""


@command.command(
    "start",
    cls=Command,
    short_help="Run a ZooKeeper, here or in the background.",
    examples=[
        ("on localhost:2181, data in ./zookeeper", "barnabas zookeeper start"),
        ("with Kafka's file", "barnabas zookeeper start config/zookeeper.properties"),
        ("that of a release you unpacked", "ZOOKEEPER_HOME=~/apache-zookeeper-3.9.5-bin barnabas zookeeper start"),
    ],
)
@click.argument("file", required=False, type=click.Path(exists=True, dir_okay=False, path_type=Path))
@option(
    "--data",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
    help="Where data is kept, without FILE.  [default: ./zookeeper]",
)
@option("--port", type=Whole(1, 65535), metavar="N", help="Where to listen, without FILE.  [default: 2181]")
@option("--daemon", is_flag=True, help="Run in the background: return when it listens; its log is DIR/zookeeper.log.")
def start(file: Path | None, data: Path | None, port: int | None, daemon: bool) -> None:
    """Run a ZooKeeper until SIGTERM or Ctrl-C; FILE is one like Kafka's zookeeper.properties.

    The server is that of ZOOKEEPER_HOME, of the system's package, or the one inside the Python package pyspark, in
    this order. All need Java. It is a single server, made for development and tests.
    """
    if file is not None and (data is not None or port is not None):
        raise click.UsageError("FILE says where data and port are: leave out --data and --port.")
    server = find_server()
    settings = read_settings(file) if file else default_settings(data or DEFAULT_DATA, port or DEFAULT_PORT)
    words = server.command(settings.file)
    if _listens(settings):
        raise Failed(f"Port {settings.port} is taken, perhaps by another ZooKeeper: stop it, or take another port.")
    settings.data.mkdir(parents=True, exist_ok=True)
    click.echo(f"ZooKeeper of {server.origin} on {settings.host}:{settings.port}; data in {settings.data}")
    sys.stdout.flush()
    if daemon:
        _start_in_background(words, settings)
        return
    settings.pid_file.write_text(f"{os.getpid()}\n", encoding="ascii")
    os.execv(words[0], words)


def _start_in_background(words: list[str], settings: Settings) -> None:
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


def _listens(settings: Settings) -> bool:
    try:
        socket.create_connection((settings.host, settings.port), 1).close()
    except OSError:
        return False
    return True


@command.command(
    "stop",
    cls=Command,
    short_help="End a ZooKeeper that runs in the background.",
    examples=[
        ("the one with its data in ./zookeeper", "barnabas zookeeper stop"),
        ("the one of a file", "barnabas zookeeper stop config/zookeeper.properties"),
    ],
)
@click.argument("file", required=False, type=click.Path(exists=True, dir_okay=False, path_type=Path))
@option(
    "--data",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
    help="Its data directory, without FILE.  [default: ./zookeeper]",
)
def stop(file: Path | None, data: Path | None) -> None:
    """End a ZooKeeper that `barnabas zookeeper start` began, and wait until it has ended."""
    if file is not None and data is not None:
        raise click.UsageError("FILE says where its data are: leave out --data.")
    directory = read_settings(file).data if file else (data or DEFAULT_DATA)
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
    asked = subprocess.run(["ps", "-o", "command=", "-p", str(pid)], capture_output=True, text=True)
    return MAIN_CLASS in asked.stdout
