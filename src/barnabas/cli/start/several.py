"""Several brokers of one cluster on this host: processes of their own over one metadata file.

A broker process uses one core, so this is how a machine is used. Folders below the data directory are numbered from 0;
ids count up from the one given, 0 as a rule, and ports from the first one. Whoever started them waits for all, and says
once that they are ready. They stop together. One that ends by itself is told of and not started again: whoever killed
it may want to see what the others do. SIGHUP starts those again that have ended, and waits until they have what they
missed; if all run, it restarts one after the other, so that each hands what it leads to those that are left.

They hold on to a pipe from this process. However this process ends, the pipe closes, and they stop cleanly too: nobody
else knows of them, and they would keep ports and data directories.
"""

from __future__ import annotations

import fcntl
import logging
import os
import select
import shlex
import signal
import socket
import sys
import time
from contextlib import ExitStack, contextmanager, suppress
from itertools import count
from typing import TYPE_CHECKING, Any

import click

from barnabas import __version__
from barnabas.cli.common.broker_options import AUTO, DEFAULT_DATA, DEFAULT_LISTEN, MOST_BROKERS, SECURE_PROTOCOL
from barnabas.cli.common.failures import Failed
from barnabas.cli.common.values.files import read_properties
from barnabas.cli.start.broker_child import STOP_SECONDS, BrokerChild, end_all
from barnabas.cli.start.console_child import console_child
from barnabas.cli.start.service import LOCK_FILE, has_open
from barnabas.model.base_error import BarnabasError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from contextlib import AbstractContextManager
    from pathlib import Path
    from types import FrameType

    from barnabas.cli.common.broker_options import BrokerCommandOptions
    from barnabas.cli.security.plan import SecurePlan

logger = logging.getLogger(__name__)

METADATA = "metadata"
STARTER_FILE = ".starter"
"""In the folder that holds those of the brokers: locked, with its pid, by the command that runs them here."""
RESTARTER_FILE = ".restarter"
"""The same for the command that restarts brokers that run in the background."""
RACK = "broker.rack"
READY_SECONDS = 600.0
"""How long a broker that is started again may take to be ready: one that was killed looks through what it wrote."""
MOST_PORT = 65_535
LOOK_SECONDS = 0.2
LOOKS = 20


def count_brokers(wanted: int, data: Path | None) -> int:
    """How many brokers: for AUTO as many as there are already, or one for each core that this process may use."""
    if wanted != AUTO:
        return wanted
    there = next(number for number in count() if not (root(data) / str(number) / LOCK_FILE).exists())
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return there or min(cores, MOST_BROKERS)


def rack_setting(options: BrokerCommandOptions) -> tuple[str, ...]:
    """The setting that makes this host the rack of its brokers, for AUTO and unless a rack was set.

    With brokers on several hosts no two replicas of a partition are on the same one.
    """
    keys = {setting.partition("=")[0].strip() for setting in options.settings}
    if options.brokers != AUTO or RACK in keys or (options.config and RACK in read_properties(options.config)):
        return ()
    return (f"{RACK}={socket.gethostname()}",)


def arguments(
    number_of_brokers: int,
    config: Path | None,
    settings: Sequence[str],
    listen: str | None,
    data: Path | None,
    secured: SecurePlan | None = None,
    *,
    metrics: int | None = None,
    first_id: int = 0,
) -> list[tuple[Path, list[str]]]:
    """Folder and words of each broker's `barnabas start`; brokers that are `secured` have settings of their own.

    `metrics` is the port at which the first one tells its figures, `first_id` its id.
    """
    ports = metrics_ports(number_of_brokers, metrics)
    keys = {setting.partition("=")[0].strip() for setting in settings}
    taken = keys & {"node.id", "broker.id", "listeners", "advertised.listeners", "log.dir", "log.dirs"}
    if taken:
        raise click.UsageError(f"--brokers sets {', '.join(sorted(taken))} itself, for each broker.")
    found = []
    for number, address in enumerate(addresses(number_of_brokers, listen)):
        folder = root(data) / str(number)
        words = ["start", "--data", str(folder)]
        if secured is not None:
            words += ["--config", str(secured.folder / secured.brokers[number].server_file)]
            words += [] if listen is None else ["--set", f"listeners={SECURE_PROTOCOL}://{address}"]
        else:
            words += ["--listen", address, *([] if config is None else ["--config", str(config)])]
        for setting in (f"node.id={first_id + number}", *settings):
            words += ["--set", setting]
        if not keys & {"metadata.store", "zookeeper.connect"}:
            words += ["--set", f"metadata.store={root(data) / METADATA}"]
        if metrics is not None:
            words += ["--metrics", str(ports[number])]
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


def metrics_ports(count: int, first: int | None) -> list[int]:
    """Where each broker tells its figures: ports count up, and 0 stays 0."""
    if first is not None and first + count - 1 > MOST_PORT:
        raise click.UsageError(f"--metrics {first} leaves no room for {count} brokers: ports end at {MOST_PORT}.")
    return [first + number if first else 0 for number in range(count)]


def root(data: Path | None) -> Path:
    """The folder that holds those of the brokers."""
    return (data or DEFAULT_DATA).absolute()


def folders(directory: Path) -> list[Path]:
    """The data directories of brokers that were started below this one, by number."""
    found = [path.parent for path in directory.glob(f"[0-9]*/{LOCK_FILE}") if path.parent.name.isdecimal()]
    return sorted(found, key=lambda folder: int(folder.name))


def restart_command(folder: Path, count: int) -> str | None:
    """What starts those of these brokers again that have ended; None where the signal for that is ignored (nohup)."""
    if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
        return None
    return f"barnabas restart --brokers {count} --data {shlex.quote(str(folder))}"


def run(
    brokers: Sequence[tuple[Path, list[str]]],
    command_config: Path | None = None,
    console: list[str] | None = None,
    *,
    first_id: int = 0,
) -> int:
    """Run brokers as children until SIGTERM or SIGINT, or until all have ended; gives the worst exit code.

    `command_config` is the file with properties of an administrator, of a cluster that is secured. With the words of a
    `console` it runs beside them, and ends before them.
    """
    run = _Run(brokers, command_config, first_id)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN or number != signal.SIGHUP:  # as nohup has it
            signal.signal(number, run.notice)
    with _announced(brokers[0][0].parent), console_child() as beside:
        return run.until_the_end(lambda: beside.start(console) if console else None, beside.tell_end)


def _announced(folder: Path) -> AbstractContextManager[None]:
    """Say in the folder of the brokers' folders who runs them; raises Failed if somebody does."""
    return _held(folder / STARTER_FILE, f"the brokers in {folder} run already")


def starter(folder: Path) -> int | None:
    """The process that runs the brokers below a folder as its children; None if there is none."""
    return _holder(folder / STARTER_FILE)


def restarter(folder: Path) -> int | None:
    """The process that restarts brokers in a folder, or below it, in the background; None if there is none."""
    return _holder(folder / RESTARTER_FILE)


@contextmanager
def restarting(folders: Iterable[Path]) -> Iterator[None]:
    """Keep others from restarting brokers that run in the background; raises Failed if one does.

    The folders are theirs, and the one that holds them. Two at once would not know of each other's brokers, and stop
    two.
    """
    with ExitStack() as held:
        for folder in folders:
            held.enter_context(_held(folder / RESTARTER_FILE, f"the brokers in {folder} are being restarted"))
        yield


@contextmanager
def _held(path: Path, failure: str) -> Iterator[None]:
    """Lock a file with the number of this process in it; raises Failed if another process has locked it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    looks = 0
    while True:
        with path.open("a+", encoding="ascii") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                looks += 1
                if (pid := _holder(path)) is not None or looks == LOOKS:
                    raise Failed(f"{failure} (process {pid})") from None
                time.sleep(LOOK_SECONDS / LOOKS)  # somebody just looked whether it is locked
                continue
            if not _is_at(file.fileno(), path):
                continue  # who had locked it has just removed it
            file.truncate(0)
            file.write(f"{os.getpid()}\n")
            file.flush()
            try:
                yield
            finally:
                path.unlink(missing_ok=True)
            return


def _is_at(descriptor: int, path: Path) -> bool:
    """Whether an open file is the one that has this path."""
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except FileNotFoundError:
        return False


def _has_open(pid: int, descriptor: int) -> bool:
    """Whether a process has a file open; so it seems where only another user may know."""
    try:
        return has_open(pid, os.fstat(descriptor))
    except PermissionError:
        return True


def _holder(path: Path) -> int | None:
    """The process that has locked a file as `_held` does; None if there is none.

    The number may be that of one that was killed, and another process may have it since: so it must have the file open.
    """
    for _ in range(LOOKS):
        try:
            with path.open("r", encoding="ascii") as file:
                try:
                    fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
                except BlockingIOError:
                    if (text := file.read()) and _has_open(int(text), file.fileno()):
                        return int(text)
                else:
                    return None
        except (FileNotFoundError, NotADirectoryError):
            return None
        time.sleep(LOOK_SECONDS / LOOKS)  # it is about to write
    return None


def _has_terminal() -> bool:
    """Whether this process has a terminal that is still there."""
    try:
        os.close(os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY))
    except OSError:
        return False
    return True


class _Run:
    """The life of all brokers."""

    def __init__(self, brokers: Sequence[tuple[Path, list[str]]], command_config: Path | None, first_id: int) -> None:
        self._brokers = brokers
        self._command_config = command_config
        self._first_id = first_id
        self._children: list[BrokerChild] = []
        self._stopping = self._restarting = self._said = False
        self._look_beside: Callable[[], str | None] = lambda: None
        self._had_terminal = _has_terminal()
        self._began = time.monotonic()

    def notice(self, number: int, frame: FrameType | None) -> None:
        """A signal came. SIGHUP may mean that the terminal was closed."""
        if number == signal.SIGHUP and not (self._had_terminal and not _has_terminal()):
            self._restarting = True
        else:
            self._stopping = True

    def until_the_end(self, on_start: Callable[[], None], look_beside: Callable[[], str | None]) -> int:
        """Start all, and stay until all have ended; `look_beside` says what is to be told of something else."""
        self._look_beside = look_beside
        reader, writer = os.pipe()
        try:
            for number, (_, words) in enumerate(self._brokers):
                self._children.append(BrokerChild(self._first_id + number, words, reader))
            on_start()
            _import_what_restarts()
            while not self._stopping and any(child.runs for child in self._children):
                self._look()
                self._tell_ends()
                if self._restarting and self._said:
                    self._restarting = False
                    ended = [index for index, child in enumerate(self._children) if not child.runs]
                    if ended:
                        self._start_again(ended)
                    if ended or not self._roll():
                        self._forget_request()
            if not self._stopping:
                self._tell_ends()
        finally:
            end_all(self._children)
            os.close(reader)
            os.close(writer)
        return 0 if self._stopping else max((child.code for child in self._children), default=0)

    def _forget_request(self) -> None:
        """What was asked meanwhile is done, unless a broker has ended again: to roll now is neither meant nor safe."""
        if self._restarting and all(child.runs for child in self._children):
            self._restarting = False
            _say("It was asked again meanwhile: to restart all brokers, ask once more.")

    def _look(self) -> None:
        """Wait a little for what children say; a signal to this process ends the wait early."""
        waiting = {child.ready_pipe: child for child in self._children if child.ready_pipe >= 0}
        for pipe in select.select(list(waiting), [], [], LOOK_SECONDS)[0]:
            child = waiting[pipe]
            child.listen()
            if child.is_late and child.report is not None:
                _say(f"Broker {child.broker_id} is ready again.")
        if not self._said and not any(child.ready_pipe >= 0 for child in self._children):
            self._said = True
            reports = [child.report for child in self._children if child.report is not None]
            if reports:
                with suppress(OSError):  # nobody reads it
                    click.echo(self._ready_line(reports))
                    sys.stdout.flush()

    def _tell_ends(self, stopped: BrokerChild | None = None) -> None:
        """Say what has ended by itself, how, and what to do; a broker that was `stopped` has not."""
        if (beside := self._look_beside()) is not None:
            _say(beside)
        for told in filter(None, [child.tell_end() for child in self._children if child is not stopped]):
            left, count = sum(child.runs for child in self._children), len(self._children)
            folder = self._brokers[0][0].parent
            command = restart_command(folder, count)
            if not left:
                rest = "No broker is left."
            elif command is None:
                rest = f"{left} of {count} go on. To start it again, stop all with: barnabas stop --data {folder}"
            else:
                rest = f"{left} of {count} go on. Start it again with: {command}"
            _say(f"{told}. {rest}")

    def _start_again(self, ended: Sequence[int]) -> None:
        """Start those that have ended, and wait until they have what they missed; the others go on as they are."""
        started = []
        for index in ended:
            child = self._children[index]
            _say(f"Starting broker {child.broker_id} again. The others are left alone.")
            try:
                self._restart(child.broker_id)
            except Exception as error:  # with this command all brokers would end
                _say(f"Error: {_in_words(error)}")
            else:
                started.append(child)
        if not started or self._stopping:
            return
        but = " Not all of its replicas are in sync yet."
        try:
            if self._wait_for(started):
                but = ""
        except Exception as error:  # with this command all brokers would end
            but = f" But: {_in_words(error)}"
        for child in started if not self._stopping else ():
            if child.runs:
                _say(f"Broker {child.broker_id} is ready again.{but}")

    def _wait_for(self, started: Sequence[BrokerChild]) -> bool:
        """Wait until the replicas of brokers that were just started are in sync, as long as that can be.

        They may need another one that has ended meanwhile: whoever asks for that one is not kept waiting.
        """
        from barnabas.cli.common.connection import read_client_properties
        from barnabas.cli.start.rolling import wait_for_started

        def is_given_up() -> bool:
            self._tell_ends()
            is_asked = self._restarting and not all(child.runs for child in self._children)
            return self._stopping or is_asked or not all(child.runs for child in started)

        properties = read_client_properties(self._command_config)
        return wait_for_started(_ages(started), self._servers(), properties, say=_say, given_up=is_given_up)

    def _ready_line(self, reports: Sequence[dict[str, Any]]) -> str:
        all_of_them = len(self._children)
        count = f"{len(reports)}" if len(reports) == all_of_them else f"{len(reports)} of {all_of_them}"
        what = "broker is" if all_of_them == 1 else "brokers are"
        listeners = ", ".join(report["listeners"] for report in reports)
        data = ", ".join(report["data"] for report in reports)
        ports = [str(report["metrics"]) for report in reports if report["metrics"] is not None]
        metrics = f"; metrics on ports {', '.join(ports)}" if ports else ""
        return (
            f"Barnabas {__version__}: {count} {what} ready on {listeners}; data in {data}; "
            f"started in {time.monotonic() - self._began:.2f} s{metrics}"
        )

    def _roll(self) -> bool:
        """Restart all; whatever goes wrong, the brokers that run go on. Whether nothing did."""
        from barnabas.cli.common.connection import read_client_properties
        from barnabas.cli.start.command import check
        from barnabas.cli.start.rolling import roll

        ran = [child for child in self._children if child.runs]

        def is_given_up() -> bool:
            ended = [child.broker_id for child in ran if not child.runs]
            if ended and not self._stopping:
                raise Failed(f"broker {ended[0]} has ended")
            return self._stopping

        try:
            for child in self._children:
                if child.ready_pipe >= 0:
                    raise Failed(f"broker {child.broker_id} is not ready yet")
            for _, words in self._brokers:  # a file with settings may have changed
                check(words)
            properties = read_client_properties(self._command_config)
            names = {child.broker_id: f"broker {child.broker_id}" for child in self._children}
            started = _ages(self._children)
            roll(names, self._restart, self._servers(), properties, say=_say, given_up=is_given_up, started=started)
        except Exception as error:  # with this command all brokers would end
            _say(f"The restart was given up: {_in_words(error)}")
            return False
        return True

    def _servers(self) -> str:
        """Where the brokers listen, each by its first listener."""
        reports = [child.report for child in self._children if child.report is not None]
        return ",".join(report["listeners"].split(", ")[0].replace("*:", "localhost:") for report in reports)

    def _restart(self, broker_id: int) -> None:
        """Stop one, if it runs, start it, and wait until it is ready; raises Failed if it is not in time."""
        child = self._children[broker_id - self._first_id]
        child.ask_to_end()
        until = time.monotonic() + STOP_SECONDS
        while time.monotonic() < until and not child.ends_within(LOOK_SECONDS):
            if self._stopping:
                return
            self._tell_ends(child)
        child.wait_for_end(until)
        if self._stopping:
            return
        child.start_again()
        until = time.monotonic() + READY_SECONDS
        while child.ready_pipe >= 0 and not self._stopping:
            self._look()
            self._tell_ends(child)
            if child.ready_pipe >= 0 and time.monotonic() > until:
                child.is_late = True
                raise Failed(f"broker {child.broker_id} is not ready after {READY_SECONDS:g} s. It is left to go on")
        if child.report is None and not self._stopping:
            raise Failed(f"broker {child.broker_id} did not start again")


def _in_words(error: Exception) -> str:
    """What is told of a failure; a fault of this program is logged with its traceback."""
    if isinstance(error, (BarnabasError, click.ClickException, OSError)):
        return str(error)
    logger.error("The restart of the brokers failed.", exc_info=error)
    return f"{type(error).__name__}: {error}"


def _import_what_restarts() -> None:
    """Have the modules of a restart as they are now: the package may be another version when one is asked for."""
    from barnabas.cli.common import connection  # noqa: F401
    from barnabas.cli.start import rolling  # noqa: F401


def _ages(children: Sequence[BrokerChild]) -> dict[int, float]:
    """How many seconds ago brokers became ready that are, by their id."""
    now = time.monotonic()
    return {child.broker_id: now - child.ready_at for child in children if child.report is not None and child.runs}


def _say(text: str) -> None:
    """Tell the terminal, if there is one."""
    with suppress(OSError):
        click.echo(text, err=True)
