"""Properties of clients in files and as pairs, by Kafka's new flags and its older ones."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import click
import pytest

from barnabas.cli.common.client_properties import given_properties
from barnabas.cli.common.options import Options
from barnabas.cli.common.values.pairs import parse_numbers, parse_pairs

if TYPE_CHECKING:
    from pathlib import Path


@dataclass(frozen=True, kw_only=True)
class Given(Options):
    command_config: Path | None = None
    producer_config: Path | None = None
    command_property: tuple[str, ...] = ()
    producer_property: tuple[str, ...] = ()


def properties(given: Given) -> dict[str, str]:
    files, pairs = ["command_config", "producer_config"], ["command_property", "producer_property"]
    return given_properties(given, files, pairs)


def test_a_file_by_either_flag(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "client.properties"
    file.write_text("acks=all\nlinger.ms = 5\n")
    assert properties(Given(command_config=file)) == {"acks": "all", "linger.ms": "5"}
    assert capsys.readouterr().err == ""
    assert properties(Given(producer_config=file)) == {"acks": "all", "linger.ms": "5"}
    assert capsys.readouterr().err == "--producer-config is deprecated in Kafka: use --command-config.\n"
    with pytest.raises(click.UsageError, match="Give --command-config or --producer-config, not both"):
        properties(Given(command_config=file, producer_config=file))
    assert properties(Given()) == {}


def test_pairs_are_stronger_than_the_file(tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text("acks=all\nlinger.ms = 5\n")
    assert properties(Given(command_config=file, command_property=("acks=1",))) == {"acks": "1", "linger.ms": "5"}
    with pytest.raises(click.UsageError, match="Give --command-property or --producer-property, not both"):
        properties(Given(command_property=("acks=1",), producer_property=("acks=1",)))


def test_pairs() -> None:
    assert parse_pairs(["acks=all", "sasl.jaas.config=a=b", "acks=1", "client.id="], "--property") == {
        "acks": "1",
        "sasl.jaas.config": "a=b",
        "client.id": "",
    }


@pytest.mark.parametrize("text", ["acks", "=all", ""])
def test_what_is_no_pair(text: str) -> None:
    with pytest.raises(click.UsageError, match=f"--property {text} is not of the form NAME=VALUE"):
        parse_pairs([text], "--property")


def test_numbers() -> None:
    assert parse_numbers("0,1,-2", "--list") == [0, 1, -2]
    assert parse_numbers("", "--list") == []
    assert parse_numbers("1,", "--list") == [1]
    with pytest.raises(click.UsageError, match="--list 1,a is not a list of numbers"):
        parse_numbers("1,a", "--list")
