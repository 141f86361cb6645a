"""Options of the connection: before the command of a group, and behind it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import click
import pytest

from barnabas.cli.common import connection
from barnabas.cli.main import cli
from barnabas.clients.errors import BrokerUnreachable

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.unit.cli.conftest import Run


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, dict[str, str]]]:
    """Which clusters were asked, with what properties; none of them answers."""
    seen: list[tuple[str, dict[str, str]]] = []

    def refuse(bootstrap_server: str, properties: dict[str, str], *_: object) -> None:
        seen.append((bootstrap_server, properties))
        raise BrokerUnreachable("no broker answers")

    monkeypatch.setattr(connection, "open_cluster", refuse)
    return seen


@pytest.mark.parametrize(
    "words",
    [("features", "describe"), ("transactions", "list"), ("cluster", "cluster-id"), ("cluster", "list-endpoints")],
    ids=" ".join,
)
def test_the_cluster_is_named_before_the_command_or_behind_it(
    run: Run, asked: list[tuple[str, dict[str, str]]], words: tuple[str, str], tmp_path: Path
) -> None:
    file = tmp_path / "client.properties"
    file.write_text("bootstrap.servers=left:1\nclient.id=tool\n")
    group, command = words
    options = ("--bootstrap-server", "b:1", "--command-config", file)
    for line in ((group, *options, command), (group, command, *options)):
        assert run(*line).exit_code == 1
    run(group, "--bootstrap-server", "b:1", command, "--command-config", file)
    assert asked == [("b:1", {"client.id": "tool"})] * 3
    run(group, "--bootstrap-server", "before:1", command, "--bootstrap-server", "behind:1")
    run(group, command)
    run(group, command, "--command-config", file)
    here = connection.DEFAULT_BOOTSTRAP_SERVER
    assert asked[3:] == [("behind:1", {}), (here, {}), ("left:1", {"client.id": "tool"})]


def test_the_file_is_asked_for_the_address_only_if_it_is_not_given(tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text("bootstrap.servers= b:1,c:1 \nclient.id=tool\n")
    options = connection.ConnectionOptions(bootstrap_server=None, command_config=file)
    assert (options.address, options.client_properties()) == ("b:1,c:1", {"client.id": "tool"})
    assert connection.ConnectionOptions(bootstrap_server="d:1", command_config=file).address == "d:1"
    file.write_text("bootstrap.servers=\n")
    empty = connection.ConnectionOptions(bootstrap_server=None, command_config=file)
    assert empty.address == connection.DEFAULT_BOOTSTRAP_SERVER


def test_a_file_that_is_a_pipe_is_read_once() -> None:
    reader, writer = os.pipe()
    os.write(writer, b"bootstrap.servers=b:1\nclient.id=tool\n")
    os.close(writer)
    try:
        options = connection.ConnectionOptions(bootstrap_server=None, command_config=Path(f"/dev/fd/{reader}"))
        assert (options.address, options.client_properties()) == ("b:1", {"client.id": "tool"})
    finally:
        os.close(reader)


@pytest.mark.parametrize(
    ("command", "old"),
    [("produce --topic t", "--producer.config"), ("consume --topic t", "--consumer.config")],
)
def test_the_old_name_of_the_file_names_the_cluster_as_well(run: Run, tmp_path: Path, command: str, old: str) -> None:
    file = tmp_path / "client.properties"
    file.write_text("bootstrap.servers=127.0.0.1:1\n")
    result = run(*command.split(), old, file)
    assert "no broker answers at 127.0.0.1:1" in result.stderr
    assert result.stderr.count("is deprecated in Kafka") == 1


@pytest.mark.parametrize(
    "words",
    [
        ("topics", "--list"),
        ("groups", "--list"),
        ("configs", "--describe", "--entity-type", "topics"),
        ("cluster", "cluster-id"),
    ],
    ids=lambda words: words[0],
)
def test_a_misspelt_property_is_refused_by_every_command(run: Run, words: tuple[str, ...], tmp_path: Path) -> None:
    """One about security above all: without it the connection would be less safe than the file asks for."""
    file = tmp_path / "client.properties"
    file.write_text("secruity.protocol=ssl\n")
    result = run(*words, "--bootstrap-server", "localhost:1", "--command-config", file)
    assert result.exit_code == 1
    assert 'No such configuration property: "secruity.protocol"' in result.output


def test_every_group_takes_the_options_of_the_connection_that_its_commands_take() -> None:
    context = click.Context(cli)
    for name in cli.list_commands(context):
        group = cli.get_command(context, name)
        if not isinstance(group, click.Group):
            continue
        for command in group.commands.values():
            shared = {option.name for option in command.params if getattr(option, "shared", False)}
            assert shared <= {option.name for option in group.params}, f"{name} {command.name}"


def every_command(command: click.Command, name: str) -> Iterator[tuple[str, click.Command]]:
    yield name, command
    if isinstance(command, click.Group):
        context = click.Context(command)
        for part in command.list_commands(context):
            found = command.get_command(context, part)
            assert found is not None
            yield from every_command(found, f"{name} {part}")


def test_every_command_that_connects_can_log_in() -> None:
    for name, command in every_command(cli, "barnabas"):
        options = {option.name for option in command.params}
        assert "bootstrap_server" not in options or "command_config" in options, name


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (
            ("groups", "--dry-run", "import-zookeeper", "--zookeeper", "zk:2181", "--group", "g"),
            "--dry-run goes behind `barnabas groups import-zookeeper`.",
        ),
        (
            ("groups", "--list", "import-zookeeper", "--zookeeper", "zk:2181", "--group", "g"),
            "`barnabas groups import-zookeeper` does not take --list.",
        ),
        (
            ("table", "--bootstrap-server", "b:1", "compact", "lake"),
            "`barnabas table compact` does not take --bootstrap-server.",
        ),
        (
            ("table", "--target-size", "4", "compact", "lake"),
            "--target-size goes behind the command: `barnabas table compact --target-size`.",
        ),
        (
            ("metadata", "--store", "f", "export", "-"),
            "--store goes behind the command: `barnabas metadata export --store` or "
            "`barnabas metadata import --store`.",
        ),
        (
            ("--bootstrap-server", "b:1", "topics", "--list"),
            "No such option '--bootstrap-server'. Options go behind the command: "
            "`barnabas COMMAND --bootstrap-server`.",
        ),
        (("features", "--nonsense", "describe"), "No such option '--nonsense'."),
    ],
)
def test_an_option_in_the_wrong_place_is_told_its_place(run: Run, words: tuple[str, ...], told: str) -> None:
    result = run(*words)
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.endswith(f"\nError: {told}\n")
