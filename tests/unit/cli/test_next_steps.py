"""What a secured cluster is followed by: lines that work as they are printed."""

from __future__ import annotations

from pathlib import Path

import pytest

from barnabas.cli.security.next_steps import next_steps

FOLDER = Path("/data.security")


@pytest.mark.parametrize(
    ("listening", "named"),
    [
        ("localhost:9092", ""),
        ("localhost:19092", "--bootstrap-server localhost:19092 "),
        ("*:9093", "--bootstrap-server localhost:9093 "),
        (":9093,:9094", "--bootstrap-server localhost:9093,localhost:9094 "),
        ("192.0.2.1:9092", "--bootstrap-server 192.0.2.1:9092 "),
    ],
)
def test_commands_name_the_brokers_where_they_are(listening: str, named: str) -> None:
    told = next_steps(FOLDER, listening)
    assert f"  barnabas topics --create --topic greetings {named}--command-config {FOLDER}/admin.properties\n" in told
    assert "PORT" not in told


@pytest.mark.parametrize("listening", ["localhost:0", ":0", "localhost:0,localhost:0"])
def test_a_port_that_is_taken_at_the_start_is_left_to_be_filled_in(listening: str) -> None:
    told = next_steps(FOLDER, listening)
    assert "PORT is what the broker says when it is ready." in told
    assert told.count("--bootstrap-server localhost:PORT --command-config") == 4
    assert ":0" not in told
