"""The options of `barnabas produce`, Kafka's rules about which of them go together, and the producer they describe."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import click

from barnabas.cli.common.client_properties import SERIALIZERS, given_properties
from barnabas.cli.common.combinations import needs
from barnabas.cli.common.connection import ConnectionOptions

if TYPE_CHECKING:
    from pathlib import Path

READERS = (
    "LineMessageReader",
    "org.apache.kafka.tools.LineMessageReader",
    "kafka.tools.ConsoleProducer$LineMessageReader",
)

PROPERTIES = {
    "timeout": "linger.ms",
    "request_required_acks": "acks",
    "request_timeout_ms": "request.timeout.ms",
    "message_send_max_retries": "retries",
    "retry_backoff_ms": "retry.backoff.ms",
    "socket_buffer_size": "send.buffer.bytes",
    "max_memory_bytes": "buffer.memory",
    "batch_size": "batch.size",
    "max_partition_memory_bytes": "batch.size",
    "metadata_expiry_ms": "metadata.max.age.ms",
    "max_block_ms": "max.block.ms",
    "compression_codec": "compression.type",
}
"""Options that stand for a property of the producer."""


@dataclass(frozen=True, kw_only=True)
class Options(ConnectionOptions):
    """The options of `barnabas produce`."""

    files: tuple[Path, ...]
    topic: str
    as_json: bool
    keep_partitions: bool
    reader_property: tuple[str, ...]
    old_property: tuple[str, ...]
    reader_config: Path | None
    line_reader: str
    key_format: str | None
    key_schema: str | None
    value_format: str | None
    value_schema: str | None
    sync: bool
    compression_codec: str | None
    request_required_acks: str | None
    timeout: int | None
    batch_size: int | None
    max_partition_memory_bytes: int | None
    max_memory_bytes: int | None
    max_block_ms: int | None
    message_send_max_retries: int | None
    retry_backoff_ms: int | None
    request_timeout_ms: int | None
    metadata_expiry_ms: int | None
    socket_buffer_size: int | None
    command_property: tuple[str, ...]
    producer_property: tuple[str, ...]
    producer_config: Path | None
    broker_list: str | None

    def check(self) -> None:
        """Refuse options that do not go together, by Kafka's rules."""
        if self.line_reader not in READERS:
            raise click.UsageError(f"--line-reader {self.line_reader}: a Java class cannot be loaded here; see --json.")
        needs(self, "keep_partitions", "as_json")

    def reader_properties(self) -> dict[str, str]:
        """How lines are read. Raises UsageError for properties of lines where lines are JSON."""
        found = given_properties(self, ["reader_config"], ["reader_property", "old_property"])
        if self.as_json and found:
            raise click.UsageError("--reader-property is about lines that are not JSON: leave it out, or --json.")
        return found

    @cached_property
    def given_properties(self) -> dict[str, str]:
        """Properties of the producer: a file, then pairs."""
        return given_properties(self, ["command_config", "producer_config"], ["command_property", "producer_property"])

    def producer_properties(self) -> dict[str, Any]:
        """Properties of the producer: those that were given, then flags."""
        found: dict[str, Any] = {"client.id": "console-producer"} | self.client_properties()
        found |= {name: value for field, name in PROPERTIES.items() if (value := getattr(self, field)) is not None}
        for name in SERIALIZERS:
            found.pop(name, None)
        return found
