"""Several brokers of one cluster on this host: processes of their own over one metadata file.

They are numbered from 0, as their folders below the data directory are; ports count up from the one given. Whoever
started them waits for all. A stop goes from one to the next, so that each hands what it leads to those that are left.
"""

from __future__ import annotations

import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import click

from barnabas.cli.common.broker_options import DEFAULT_DATA, DEFAULT_LISTEN, SECURE_PROTOCOL
from barnabas.cli.start.service import LOCK_FILE

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path
    from types import FrameType

    from barnabas.cli.security.plan import SecurePlan

METADATA = "metadata"
STOP_SECONDS = 60.0
MOST_PORT = 65_535


def arguments(
    count: int,
    config: Path | None,
    settings: Sequence[str],
    listen: str | None,
    data: Path | None,
    secured: SecurePlan | None = None,
) -> list[tuple[Path, list[str]]]:
    """Folder and words of each broker's `barnabas start`; brokers that are `secured` have settings of their own."""
    keys = {setting.partition("=")[0].strip() for setting in settings}
    taken = keys & {"node.id", "broker.id", "listeners", "advertised.listeners", "log.dir", "log.dirs"}
    if taken:
        raise click.UsageError(f"--brokers sets {', '.join(sorted(taken))} itself, for each broker.")
    found = []
    for number, address in enumerate(addresses(count, listen)):
        folder = root(data) / str(number)
        words = ["start", "--data", str(folder)]
        if secured is not None:
            words += ["--config", str(secured.folder / secured.brokers[number].server_file)]
            words += [] if listen is None else ["--set", f"listeners={SECURE_PROTOCOL}://{address}"]
        else:
            words += ["--listen", address, *([] if config is None else ["--config", str(config)])]
        for setting in (f"node.id={number}", *settings):
            words += ["--set", setting]
        if not keys & {"metadata.store", "zookeeper.connect"}:
            words += ["--set", f"metadata.store={root(data) / METADATA}"]
        found.append((folder, words))
    return found


def addresses(count: int, listen: str | None) -> list[str]:
    """Where each broker listens: ports count up."""
    host, _, port = (listen or DEFAULT_LISTEN).rpartition(":")
    if not port.isdecimal():
        raise click.UsageError("--brokers needs --listen HOST:PORT, the address of the first one.")
    if int(port) + count - 1 > MOST_PORT:
        raise click.UsageError(f"--listen {host}:{port} leaves no room for {count} brokers: ports end at {MOST_PORT}.")
    return [f"{host}:{int(port) + number if int(port) else 0}" for number in range(count)]


def root(data: Path | None) -> Path:
    """The folder that holds those of the brokers."""
    return (data or DEFAULT_DATA).absolute()


def folders(directory: Path) -> list[Path]:
    """The data directories of brokers that were started below this one, by number."""
    found = [path.parent for path in directory.glob(f"[0-9]*/{LOCK_FILE}") if path.parent.name.isdecimal()]
    return sorted(found, key=lambda folder: int(folder.name))


def run(brokers: Sequence[tuple[Path, list[str]]]) -> int:
    """Run brokers as children until SIGTERM or SIGINT, or until all have ended; gives the worst exit code."""
    children: list[subprocess.Popen[bytes]] = []
    stopping = False

    def stop(number: int, frame: FrameType | None) -> None:
        nonlocal stopping
        stopping = True

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, stop)
    try:
        for _, words in brokers:
            children.append(
                subprocess.Popen([sys.executable, "-m", "barnabas.cli.main", *words], start_new_session=True)
            )
        while not stopping and any(child.poll() is None for child in children):
            _nap(children)
    finally:
        for child in children:
            _end(child)
    return max((abs(child.returncode) for child in children), default=0) if not stopping else 0


def _nap(children: Sequence[subprocess.Popen[bytes]]) -> None:
    """Wait a little for a child that runs; a signal to this process ends the wait early."""
    running = next(child for child in children if child.poll() is None)
    try:
        running.wait(0.2)
    except subprocess.TimeoutExpired:
        return


def _end(child: subprocess.Popen[bytes]) -> None:
    if child.poll() is None:
        child.send_signal(signal.SIGTERM)
        try:
            child.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()
