from __future__ import annotations

from typing import TYPE_CHECKING

import click
import pytest

from barnabas.cli.perf.properties import from_files, pairs, with_address

if TYPE_CHECKING:
    from pathlib import Path


def test_pairs() -> None:
    assert pairs(["acks=all", "sasl.jaas.config=a=b", "acks=1", "client.id="]) == {
        "acks": "1",
        "sasl.jaas.config": "a=b",
        "client.id": "",
    }


@pytest.mark.parametrize("text", ["acks", "=all", ""])
def test_anything_else_is_wrong_usage(text: str) -> None:
    with pytest.raises(click.UsageError, match="is not of the form NAME=VALUE"):
        pairs([text])


def test_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Java's classes for bytes are left out: there is no Java here, and Kafka's tools overrule them."""
    file = tmp_path / "client.properties"
    file.write_text(
        "acks=all\nlinger.ms = 5\nkey.serializer=org.apache.kafka.common.serialization.StringSerializer\n"
        "value.deserializer=org.apache.kafka.common.serialization.StringDeserializer\n"
    )
    assert from_files("--producer.config", None, file) == {"acks": "all", "linger.ms": "5"}
    assert capsys.readouterr().err == ""
    assert from_files("--producer.config", file, None) == {"acks": "all", "linger.ms": "5"}
    assert capsys.readouterr().err == "Option --producer.config is deprecated in Kafka: use --command-config.\n"
    with pytest.raises(click.UsageError, match=r"Give --command-config or --producer\.config, not both\."):
        from_files("--producer.config", file, file)
    assert from_files("--producer.config", None, None) == {}


def test_the_address() -> None:
    given = {"bootstrap.servers": "a:1"}
    assert with_address(given, "b:2") == {"bootstrap.servers": "b:2"}
    assert with_address(given, None) == given
    assert with_address({}, None) == {"bootstrap.servers": "localhost:9092"}
