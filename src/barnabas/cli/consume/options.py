"""The options of `barnabas consume`, Kafka's rules about which of them go together, and the consumer they describe."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import click

from barnabas.cli.common.client_properties import SERIALIZERS, given_properties
from barnabas.cli.common.combinations import all_given, at_most_one, flag, needs, renamed
from barnabas.cli.common.connection import ConnectionOptions
from barnabas.model.numbers import MAX_INT64

if TYPE_CHECKING:
    from pathlib import Path


OF_A_SHARE_GROUP = ("release", "reject", "reject_message_on_error")
NOT_OF_A_SHARE_GROUP = (
    "include",
    "whitelist",
    "from_beginning",
    "partition",
    "offset",
    "isolation_level",
    "until_end",
    "skip_message_on_error",
)


@dataclass(frozen=True, kw_only=True)
class Options(ConnectionOptions):
    """The options of `barnabas consume`."""

    topic: str | None
    include: str | None
    whitelist: str | None
    from_beginning: bool
    partition: int | None
    offset: str | None
    group: str | None
    share: bool
    release: bool
    reject: bool
    expression: str | None
    isolation_level: str | None
    max_messages: int | None
    timeout_ms: int | None
    until_end: bool
    skip_message_on_error: bool
    reject_message_on_error: bool
    key_format: str | None
    key_schema: str | None
    value_format: str | None
    value_schema: str | None
    key_deserializer: str | None
    value_deserializer: str | None
    formatter_property: tuple[str, ...]
    old_property: tuple[str, ...]
    formatter_config: Path | None
    formatter: str | None
    as_json_lines: bool
    enable_systest_events: bool
    command_property: tuple[str, ...]
    consumer_property: tuple[str, ...]
    consumer_config: Path | None

    @property
    def pattern(self) -> str | None:
        """The topics of --include, or of --whitelist, its older name."""
        return self.include or self.whitelist

    @property
    def most(self) -> int | None:
        """How many records to show; None for any number."""
        return None if self.max_messages == -1 else self.max_messages

    @property
    def quiet_seconds(self) -> float | None:
        """After how long without a record to stop; None for never."""
        return None if self.timeout_ms is None or self.timeout_ms < 0 else self.timeout_ms / 1000

    @property
    def start(self) -> str:
        """Where to begin in the partition of --partition: earliest, latest or a number."""
        return (self.offset or ("earliest" if self.from_beginning else "latest")).lower()

    def check(self) -> None:
        """Refuse options that do not go together, by Kafka's rules."""
        renamed(self, "include", "whitelist")
        if (self.topic is None) == (self.pattern is None):
            raise click.UsageError("Give --topic or --include.")
        self._check_share()
        needs(self, "offset", "partition")
        needs(self, "partition", "topic")
        if self.partition is not None:
            self._check_partition()

    def _check_share(self) -> None:
        for name in all_given(self, OF_A_SHARE_GROUP):
            needs(self, name, "share")
        if self.share and (others := all_given(self, NOT_OF_A_SHARE_GROUP)):
            raise click.UsageError(
                f"{flag(others[0])} does not go with --share: a share group hands out messages of all partitions, and "
                "knows itself what is done."
            )
        if self.share and self.expression is not None:
            raise click.UsageError(
                "--filter does not go with --share: messages that it leaves out would be done with, and nobody would "
                "see them."
            )
        at_most_one(self, "release", "reject")
        at_most_one(self, "reject_message_on_error", "skip_message_on_error")

    def _check_partition(self) -> None:
        at_most_one(self, "from_beginning", "offset")
        if self.group:
            raise click.UsageError("--group does not go with --partition: a group assigns the partitions itself.")
        if self.start not in ("earliest", "latest") and not self.start.isdecimal():
            raise click.UsageError(f"--offset {self.start}: give earliest, latest or a number that is not negative.")
        if self.start.isdecimal() and int(self.start) > MAX_INT64:
            raise click.UsageError(f"--offset {self.start}: an offset is at most {MAX_INT64}.")

    def formatter_properties(self) -> dict[str, str]:
        """What lines show."""
        return given_properties(self, ["formatter_config"], ["formatter_property", "old_property"])

    @cached_property
    def given_properties(self) -> dict[str, str]:
        """Properties of the consumer: a file, then pairs."""
        return given_properties(self, ["command_config", "consumer_config"], ["command_property", "consumer_property"])

    def consumer_properties(self) -> dict[str, Any]:
        """Properties of the consumer: those that were given, then flags. Raises UsageError where they contradict."""
        found: dict[str, Any] = {"client.id": "console-consumer"} | self.client_properties()
        for name in SERIALIZERS:
            found.pop(name, None)
        if self.group:
            if found.get("group.id", self.group) != self.group:
                raise click.UsageError(f"--group is {self.group}, but the property group.id is {found['group.id']}.")
            found["group.id"] = self.group
        if self.from_beginning:
            if found.get("auto.offset.reset", "earliest") != "earliest":
                reset = found["auto.offset.reset"]
                raise click.UsageError(f"--from-beginning does not go with auto.offset.reset={reset}.")
            found["auto.offset.reset"] = "earliest"
        if self.isolation_level:
            found["isolation.level"] = self.isolation_level
        found.setdefault("isolation.level", "read_uncommitted")  # as in Kafka; librdkafka has it the other way round
        return found
