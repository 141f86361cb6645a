from __future__ import annotations

import re
import shlex
import subprocess
import sys
from typing import TYPE_CHECKING

import click
import pytest

from barnabas import __version__
from barnabas.cli.common.help import Context
from barnabas.cli.main import COMMANDS, cli
from barnabas.clients.errors import LoginFailed
from tests.support.processes import free_port

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.unit.cli.conftest import Run

NAMES = [name for commands in COMMANDS.values() for name in commands]


def test_help_lists_every_command_and_shows_examples(run: Run) -> None:
    shown = run("--help").stdout
    for section, commands in COMMANDS.items():
        assert f"\n{section}:\n" in shown
        for name, command in commands.items():
            assert name in shown
            assert command.summary in shown
    assert "\n  barnabas start\n" in shown


@pytest.mark.parametrize("name", NAMES)
def test_every_command_has_help_with_an_example(run: Run, name: str) -> None:
    shown = run(name, "--help").stdout
    assert f"Usage: barnabas {name}" in shown
    assert "Examples:\n" in shown
    assert f"barnabas {name}" in shown.split("Examples:\n")[1]


def leaves(command: click.Command, name: str) -> Iterator[tuple[str, click.Command]]:
    """Commands below a command, with all of their words."""
    if isinstance(command, click.Group):
        context = click.Context(command)
        for word in command.list_commands(context):
            found = command.get_command(context, word)
            assert found is not None
            yield from leaves(found, f"{name} {word}")
    else:
        yield name, command


def test_every_command_below_a_command_has_an_example_of_itself() -> None:
    for name, command in leaves(cli, "barnabas"):
        lines = [line for _, line in getattr(command, "examples", ())]
        assert any(name in line for line in lines), name


def test_no_summary_of_a_command_is_cut_short() -> None:
    for name, command in leaves(cli, "barnabas"):
        if name.removeprefix("barnabas ") in NAMES:  # the program's own help has summaries of its own
            continue
        assert not command.get_short_help_str(limit=60).endswith("..."), name


@pytest.mark.parametrize("width", [60, 80, 100])
def test_help_is_not_wrapped_within_names(width: int) -> None:
    for name, command in leaves(cli, "barnabas"):
        with Context(command, info_name=name, terminal_width=width) as context:
            shown = command.get_help(context)
        assert not re.search(r"\w-\n", shown), f"{name} at {width} columns:\n{shown}"
        assert "\N{NON-BREAKING HYPHEN}" not in shown


def test_version(run: Run) -> None:
    assert run("--version").stdout == f"barnabas, version {__version__}\n"


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("topcis", "topics"),
        ("console-consumer", "consume"),
        ("kafka-consumer-groups.sh", "groups"),
        ("dump-log", "log dump"),
    ],
)
def test_an_unknown_command_is_wrong_usage(run: Run, typed: str, meant: str) -> None:
    result = run(typed)
    assert result.exit_code == 2
    assert f"No such command '{typed}'. Did you mean `barnabas {meant}`?" in result.stderr


def test_a_command_that_is_like_no_other_gets_no_guess(run: Run) -> None:
    result = run("frobnicate")
    assert result.exit_code == 2
    assert "No such command 'frobnicate'.\n" in result.stderr


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_scripts(run: Run, shell: str) -> None:
    script = run("completion", shell).stdout
    assert f"_BARNABAS_COMPLETE={shell}_complete" in script


def test_a_dead_broker_is_told_in_one_line_with_the_next_step(run: Run) -> None:
    address = f"127.0.0.1:{free_port()}"
    result = run("topics", "--list", "--bootstrap-server", address)
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr == (
        f"Error: no broker answers at {address} (connection refused). "
        "Start one with `barnabas start`, or name another with --bootstrap-server HOST:PORT.\n"
    )


def test_what_the_system_refuses_is_told_in_one_line(run: Run) -> None:
    @cli.command("break")
    def break_() -> None:
        raise FileNotFoundError(2, "No such file or directory", "/nowhere")

    try:
        result = run("break")
    finally:
        cli.commands.pop("break")
    assert (result.exit_code, result.stderr) == (1, "Error: /nowhere: No such file or directory\n")


def test_a_broker_that_does_not_let_us_in_is_not_one_to_be_started(run: Run) -> None:
    @cli.command("break")
    def break_() -> None:
        raise LoginFailed("certificate verify failed")

    try:
        result = run("break")
    finally:
        cli.commands.pop("break")
    assert result.stderr == (
        "Error: certificate verify failed. Look at the properties of the connection: security.protocol, ssl.* and "
        "sasl.*.\n"
    )


def test_defects_are_not_hidden(run: Run) -> None:
    @cli.command("break")
    def break_() -> None:
        raise ZeroDivisionError

    try:
        result = run("break")
    finally:
        cli.commands.pop("break")
    assert isinstance(result.exception, ZeroDivisionError)


def test_an_interrupt_has_its_own_exit_code_and_says_nothing(run: Run) -> None:
    @cli.command("break")
    def break_() -> None:
        raise KeyboardInterrupt

    try:
        result = run("break")
    finally:
        cli.commands.pop("break")
    assert (result.exit_code, result.output) == (130, "")


def test_standard_streams_may_be_closed(tmp_path: Path) -> None:
    line = shlex.join([sys.executable, "-m", "barnabas.cli.main", "log", "cleaner", str(tmp_path)])
    done = subprocess.run(["sh", "-c", f"{line} <&- >&-"], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, f"No partition of {tmp_path} was cleaned yet.\n")


def test_help_loads_no_command_and_nothing_heavy() -> None:
    heavy = ["asyncio", "kio", "hypothesis", "confluent_kafka", "rich", "barnabas.cli.topics"]
    code = (
        "import sys, contextlib\n"
        "from barnabas.cli.main import main\n"
        "sys.argv = ['barnabas', '--help']\n"
        "with contextlib.suppress(SystemExit): main()\n"
        f"print([name for name in {heavy!r} if sys.modules.get(name)], file=sys.stderr)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr == "[]\n"
