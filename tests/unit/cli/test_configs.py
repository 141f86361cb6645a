from __future__ import annotations

from typing import TYPE_CHECKING

import click
import pytest

from barnabas.cli.configs import parse_additions
from barnabas.clients.configs import EntityType, Setting, Source

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
        (Source.DYNAMIC_TOPIC_CONFIG, EntityType.TOPICS, "t", True),
        (Source.STATIC_BROKER_CONFIG, EntityType.TOPICS, "t", False),
        (Source.DYNAMIC_BROKER_CONFIG, EntityType.BROKERS, "1", True),
        (Source.DYNAMIC_DEFAULT_BROKER_CONFIG, EntityType.BROKERS, "1", False),
        (Source.DYNAMIC_DEFAULT_BROKER_CONFIG, EntityType.BROKERS, "", True),
        (Source.DYNAMIC_GROUP_CONFIG, EntityType.GROUPS, "g", True),
        (Source(99), EntityType.GROUPS, "g", False),
    ],
)
def test_what_was_set_for_the_entity_itself(source: Source, kind: EntityType, name: str, own: bool) -> None:
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
        ("--describe --entity-type users", "'users' is not one of"),
        ("--describe --entity-type topics --entity-default", "There are no defaults for topics"),
        ("--describe --entity-type brokers --entity-name 1 --entity-default", "Give --entity-name or --entity-default"),
        ("--describe --entity-type broker-loggers", "the loggers of which broker?"),
        ("--describe --broker one", "A broker's name is its id, a number, and not one."),
        ("--describe --topic t --add-config a=b", "go with --alter."),
        ("--alter --topic t --all --add-config a=b", "--all goes with --describe."),
        ("--alter --entity-type topics --add-config a=b", "--alter of topics needs --entity-name."),
        ("--alter --topic t", "--alter needs --add-config, --add-config-file or --delete-config."),
        ("--alter --topic t --add-config retention.ms", "is not of the form KEY=VALUE"),
    ],
)
def test_command_lines_that_mean_nothing_are_refused(run: Run, line: str, complaint: str) -> None:
    result = run("configs", *line.split())
    assert result.exit_code == 2
    assert complaint in result.stderr
