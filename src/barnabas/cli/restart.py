"""`barnabas restart`: stop the brokers of a data directory and start them again, one after the other."""

from __future__ import annotations

import os
import signal
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from barnabas.cli.common.broker_options import broker_options
from barnabas.cli.common.failures import Failed
from barnabas.cli.common.help import Command
from barnabas.cli.common.options import takes
from barnabas.cli.stop import StoppingOptions, stop_timeout

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from types import FrameType

    from barnabas.cli.common.broker_options import BrokerCommandOptions

STDERR: Final = 2


@click.command(
    cls=Command,
    examples=[
        ("the brokers of `barnabas start --brokers 3 --daemon`", "barnabas restart --brokers 3"),
        ("with another setting from now on", "barnabas restart --brokers 3 --set num.io.threads=16"),
        ("the broker with its data elsewhere", "barnabas restart --data /var/lib/barnabas"),
    ],
)
@broker_options(
    brokers="Restart the cluster of `barnabas start --brokers N`, with its data in DIR/0, DIR/1 and so on.",
    daemon="Has no effect: brokers that this command starts run in the background.",
    secure="As for `barnabas start`.",
    console="Has no effect: start `barnabas console` beside brokers in the background.",
    metrics="As for `barnabas start`.",
)
@stop_timeout
@takes(StoppingOptions)
def command(options: StoppingOptions) -> None:
    """Stop and start the brokers of a data directory, one after the other, with the options of `barnabas start`.

    Each broker hands what it leads to the others, stops, starts again, and fetches what it missed; then comes the next.
    So topics with two replicas or more stay available. One that does not end within --timeout is killed. If some have
    ended, those are started and the others left alone. Brokers of `start --brokers` that run in a terminal are
    restarted there; all others run in the background then.
    """
    from barnabas.cli.start import command as start
    from barnabas.cli.start import service, several

    options.warn_of_secrets()
    directory = several.root(options.data) if options.brokers is not None else options.load().log_dirs[0]
    if (pid := several.starter(directory)) is not None:
        if ignores_sighup(pid):
            raise Failed(
                f"process {pid} runs these brokers and ignores SIGHUP, by which it is asked to restart them, as nohup "
                "has it. Stop them with `barnabas stop` and start them again, in the background with --daemon."
            )
        os.kill(pid, signal.SIGHUP)
        click.echo(
            f"Asked process {pid} to restart its brokers, or those that have ended. It says in its terminal how far it "
            "is."
        )
        return
    if options.brokers is None and (there := len(several.folders(directory))):
        raise Failed(f"{directory} has {there} brokers: repeat the options of their start, --brokers among them.")
    wanted = replace(start.counted(options), console=None)
    secured = start.secure(wanted) if options.secure else None
    brokers = start.arguments(wanted, secured)
    for _, words in brokers:
        start.check(words)
    folders = {folder.resolve(): folder for folder in (directory, *(folder for folder, _ in brokers))}
    with several.restarting(folders.values()), Interruptions.heard() as interruptions:
        ended = [index for index, (folder, _) in enumerate(brokers) if not service.is_running(folder)]
        if len(ended) == len(brokers):
            start.start_all_in_background(brokers, lambda: interruptions.came)
        elif len(brokers) == 1:
            restart_one(*brokers[0], options.timeout)
        elif ended:
            start_ended(wanted, start.admin_file(secured), brokers, ended, interruptions)
        else:
            restart_all(wanted, start.admin_file(secured), brokers, options.timeout, interruptions)


def restart_one(folder: Path, words: list[str], timeout: float) -> None:
    """Stop a broker, which is killed where that takes longer than the timeout, and start it again."""
    from barnabas.cli.start import command as start
    from barnabas.cli.start import service

    if (pid := service.stop_or_kill(folder, timeout)) is not None:
        with suppress(OSError):  # nobody reads it, and the broker is to start all the same
            click.echo(f"The broker on {folder} (process {pid}) did not end within {timeout:g} s, and was killed.")
    start.start_in_background(words, folder)


def restart_all(
    options: BrokerCommandOptions,
    command_config: Path | None,
    brokers: Sequence[tuple[Path, list[str]]],
    timeout: float,
    interruptions: Interruptions,
) -> None:
    """Restart brokers that run in the background, each with its folder and words, one after the other."""
    from barnabas.cli.common.connection import read_client_properties
    from barnabas.cli.start import command as start
    from barnabas.cli.start import service
    from barnabas.cli.start.rolling import roll

    found = dict(enumerate(brokers, start=options.first_id))

    def restart(broker: int) -> None:
        restart_one(*found[broker], timeout)

    def is_given_up() -> bool:
        for folder, _ in brokers:
            if not interruptions.came and not service.is_running(folder):
                raise Failed(f"the broker on {folder} has ended. To start it, type this again.")
        return interruptions.came

    roll(
        {broker: f"the broker on {folder}" for broker, (folder, _) in found.items()},
        restart,
        start.reached(options),
        read_client_properties(command_config),
        say=click.echo,
        given_up=is_given_up,
        started={broker: service.seconds_ready(folder) for broker, (folder, _) in found.items()},
    )


def start_ended(
    options: BrokerCommandOptions,
    command_config: Path | None,
    brokers: Sequence[tuple[Path, list[str]]],
    ended: Sequence[int],
    interruptions: Interruptions,
) -> None:
    """Start those that have `ended`, by their places, and wait until they have what they missed."""
    from barnabas.cli.common.connection import read_client_properties
    from barnabas.cli.start import command as start
    from barnabas.cli.start import service
    from barnabas.cli.start.rolling import wait_for_started

    failed = False
    for index in ended:
        if interruptions.came:
            return
        click.echo(f"Starting the broker on {brokers[index][0]} again. The others are left alone.")
        try:
            start.start_in_background(brokers[index][1], brokers[index][0])
        except Failed as error:  # it may need one of the next
            click.echo(f"Error: {error}", err=True)
            failed = True

    def ended_again() -> bool:
        for index in starting:
            if not service.is_running(folder := brokers[index][0]):
                raise Failed(f"The broker on {folder} has ended again: see its log.")
        return interruptions.came

    starting = [index for index in ended if service.is_running(brokers[index][0])]
    ages = {options.first_id + index: service.seconds_ready(brokers[index][0]) for index in starting}
    properties = read_client_properties(command_config)
    wait_for_started(ages, start.reached(options), properties, say=click.echo, given_up=ended_again)
    if failed:
        raise click.exceptions.Exit(1)
    if not interruptions.came:
        click.echo("Those that had ended run again. To restart all, type this again.")


class Interruptions:
    """Signals that end a command which restarts brokers: the broker at hand is started first, the others stay.

    A terminal that is closed, or a Ctrl-C, would leave the one that is stopped just now down. The second signal ends
    the command at once, and SIGTERM, by which `barnabas stop` ends it, a broker that is not ready yet as well.
    """

    def __init__(self) -> None:
        self._number = 0
        self._undo = ExitStack()

    @property
    def came(self) -> bool:
        """Whether there was one."""
        return self._number > 0

    @classmethod
    @contextmanager
    def heard(cls) -> Iterator[Interruptions]:
        """Hear them in the block, after which the command ends as by the signal that came."""
        self = cls()
        with self._undo as undo:
            for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
                before = signal.getsignal(number)
                if before is not signal.SIG_IGN:  # as nohup has it
                    signal.signal(number, self._notice)
                    undo.callback(signal.signal, number, before)
            yield self
        if self.came:
            raise click.exceptions.Exit(128 + self._number)

    def _notice(self, number: int, frame: FrameType | None) -> None:
        self._number = number
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGHUP})
        self._undo.close()
        before = signal.signal(signal.SIGTERM, signal.default_int_handler)
        self._undo.callback(signal.signal, signal.SIGTERM, before)
        # A terminal that is closed sends SIGHUP twice, the shell and then the system; maybe after somebody's Ctrl-C.
        if (hung_up := signal.getsignal(signal.SIGHUP)) is not signal.SIG_IGN:
            signal.signal(signal.SIGHUP, lambda *_: None)  # brokers would inherit that it is ignored
            self._undo.callback(signal.signal, signal.SIGHUP, hung_up)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGHUP})
        with suppress(OSError):  # the terminal is closed
            os.write(STDERR, b"The restart ends after the broker at hand.\n")


def ignores_sighup(pid: int) -> bool:
    """Whether a signal that asks a process to restart its brokers would be lost, as far as this system tells."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text(encoding="ascii", errors="replace").splitlines()
    except OSError:
        return False
    ignored = next((line.split()[1] for line in lines if line.startswith("SigIgn:")), "0")
    return bool(int(ignored, 16) >> (signal.SIGHUP - 1) & 1)
