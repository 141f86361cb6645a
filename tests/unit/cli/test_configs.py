from __future__ import annotations

from typing import TYPE_CHECKING

import click
import pytest

from barnabas.cli.common import connection
from barnabas.cli.configs.alter import parse_additions
from barnabas.clients.admin.configs import EntityType, Setting
from barnabas.clients.errors import RequestRefused
from barnabas.model.errors import ErrorCode
from barnabas.protocol.apis import ConfigSource
from tests.unit.cli.conftest import FakeCluster

if TYPE_CHECKING:
    from tests.unit.cli.conftest import Run


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a=1", {"a": "1"}),
        ("a=1,b = 2 ", {"a": "1", "b": "2"}),
        ("a=[x,y],b=", {"a": "x,y", "b": ""}),
        ("a=[k=v,l=w]", {"a": "k=v,l=w"}),
    ],
)
def test_settings_with_commas_and_brackets(text: str, expected: dict[str, str]) -> None:
    assert parse_additions(text) == expected


@pytest.mark.parametrize("text", ["a", "a=1,b", "=1", "a=1=2"])
def test_what_is_no_setting(text: str) -> None:
    with pytest.raises(click.UsageError, match="is not of the form KEY=VALUE"):
        parse_additions(text)


@pytest.mark.parametrize(
    ("source", "kind", "name", "own"),
    [
        (ConfigSource.DYNAMIC_TOPIC_CONFIG, EntityType.TOPICS, "t", True),
        (ConfigSource.STATIC_BROKER_CONFIG, EntityType.TOPICS, "t", False),
        (ConfigSource.DYNAMIC_BROKER_CONFIG, EntityType.BROKERS, "1", True),
        (ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG, EntityType.BROKERS, "1", False),
        (ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG, EntityType.BROKERS, "", True),
        (ConfigSource.DYNAMIC_GROUP_CONFIG, EntityType.GROUPS, "g", True),
        (ConfigSource(99), EntityType.GROUPS, "g", False),
    ],
)
def test_what_was_set_for_the_entity_itself(source: ConfigSource, kind: EntityType, name: str, own: bool) -> None:
    setting = Setting(name="k", value="v", source=source, read_only=False, sensitive=False, stated=())
    assert setting.is_dynamic_for(kind, name) is own


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("--topic t", "Give exactly one action: --describe or --alter."),
        ("--describe", "Give --entity-type, or one of --topic"),
        ("--describe --topic t --group g", "Give --entity-type, or one of --topic"),
        ("--describe --topic t --entity-type topics", "Give --entity-type, or one of --topic"),
        ("--describe --topic t --entity-name u", "--topic names the entity: leave out --entity-..."),
        ("--describe --entity-type user", "'user' is not one of"),
        ("--describe --entity-type topics --entity-default", "There are no defaults for topics"),
        ("--describe --entity-type brokers --entity-name 1 --entity-default", "Give --entity-name or --entity-default"),
        ("--describe --entity-type broker-loggers", "broker-loggers needs --entity-name, the id of a broker."),
        ("--describe --broker one", "one is not the id of a broker, which is a number."),
        ("--describe --topic t --add-config a=b", "--add-config goes with --alter, not with --describe."),
        ("--alter --topic t --all --add-config a=b", "--all goes with --describe, not with --alter."),
        ("--alter --entity-type topics --add-config a=b", "--alter of topics needs --entity-name."),
        ("--alter --topic t", "--alter needs --add-config, --add-config-file or --delete-config."),
        ("--alter --topic t --add-config retention.ms", "is not of the form KEY=VALUE"),
    ],
)
def test_command_lines_that_mean_nothing_are_refused(run: Run, line: str, complaint: str) -> None:
    result = run("configs", *line.split())
    assert result.exit_code == 2
    assert complaint in result.stderr


@pytest.mark.parametrize(
    ("typed", "hint"), [("retention.mss", ". Did you mean retention.ms?"), ("nothing.near.it", "")]
)
def test_a_config_that_is_misspelt_is_suggested(
    run: Run, monkeypatch: pytest.MonkeyPatch, typed: str, hint: str
) -> None:
    class Refusing:
        def alter(self, *_: object, **__: object) -> None:
            raise RequestRefused(ErrorCode.invalid_config, f"Unknown topic config name: {typed}")

    monkeypatch.setattr(connection, "open_cluster", lambda *_: FakeCluster(configs=Refusing()))
    result = run("configs", "--alter", "--topic", "t", "--add-config", f"{typed}=1")
    assert (result.exit_code, result.stderr) == (1, f"Error: Unknown topic config name: {typed}{hint}\n")
