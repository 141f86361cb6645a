from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.cli.perf.properties import PerfOptions, with_address

if TYPE_CHECKING:
    from pathlib import Path


def test_the_address() -> None:
    given = {"bootstrap.servers": "a:1"}
    assert with_address(given, "b:2") == {"bootstrap.servers": "b:2"}
    assert with_address(given, None) == given
    assert with_address({}, None) == {"bootstrap.servers": "localhost:9092"}


def test_java_classes_for_bytes_are_left_out(tmp_path: Path) -> None:
    """There is no Java here, and Kafka's tools overrule them."""
    file = tmp_path / "client.properties"
    file.write_text(
        "acks=all\nkey.serializer=org.apache.kafka.common.serialization.StringSerializer\n"
        "value.deserializer=org.apache.kafka.common.serialization.StringDeserializer\n"
    )
    options = PerfOptions(bootstrap_server="a:1", command_config=file, as_json=False)
    assert options.client_properties(["command_config"]) == {"acks": "all", "bootstrap.servers": "a:1"}
