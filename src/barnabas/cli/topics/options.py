"""The options of `barnabas topics`, and Kafka's rules about which of them go together."""

from __future__ import annotations

from dataclasses import dataclass

import click

from barnabas.cli.common.combinations import Actions, all_given, needs
from barnabas.cli.common.connection import ConnectionOptions

REPORTS = (
    "under_replicated_partitions",
    "unavailable_partitions",
    "under_min_isr_partitions",
    "at_min_isr_partitions",
)
ACTIONS = Actions(
    ("create", "list", "describe", "alter", "delete"),
    goes_with={
        "config": ("create", "alter"),
        "delete_config": ("alter",),
        "partitions": ("create", "alter"),
        "replication_factor": ("create",),
        "replica_assignment": ("create", "alter"),
        "if_not_exists": ("create",),
        "if_exists": ("alter", "delete", "describe"),
        "exclude_internal": ("list", "describe"),
        "topic_id": ("describe",),
        "topics_with_overrides": ("describe",),
        **dict.fromkeys(REPORTS, ("describe",)),
    },
    needs={"create": ("topic",), "alter": ("topic",), "delete": ("topic",)},
)


@dataclass(frozen=True, kw_only=True)
class Options(ConnectionOptions):
    """The options of `barnabas topics`."""

    create: bool
    list: bool
    describe: bool
    alter: bool
    delete: bool
    topic: str | None
    topic_id: str | None
    partitions: int | None
    replication_factor: int | None
    replica_assignment: str | None
    config: tuple[str, ...]
    delete_config: tuple[str, ...]
    if_not_exists: bool
    if_exists: bool
    exclude_internal: bool
    topics_with_overrides: bool
    under_replicated_partitions: bool
    unavailable_partitions: bool
    under_min_isr_partitions: bool
    at_min_isr_partitions: bool
    partition_size_limit_per_response: int | None
    as_json: bool

    @property
    def action(self) -> str:
        """The one action that was asked for."""
        return ACTIONS.chosen(self)

    @property
    def report(self) -> bool:
        """Whether only partitions in some trouble are wanted."""
        return bool(all_given(self, REPORTS))

    def check(self) -> None:
        """Refuse combinations that mean nothing, with Kafka's rules."""
        ACTIONS.check(self)
        needs(self, "if_exists", "topic", "topic_id")
        if self.create and self.replica_assignment and (self.partitions or self.replication_factor):
            raise click.UsageError(
                "--replica-assignment says how many partitions and replicas there are: "
                "leave out --partitions and --replication-factor."
            )
        if self.alter:
            needs(self, "alter", "partitions", "config", "delete_config")
        if self.alter and self.replica_assignment and not self.partitions:
            raise click.UsageError("--alter with --replica-assignment needs --partitions.")
        if self.topics_with_overrides and self.report:
            raise click.UsageError("--topics-with-overrides does not go with a report on partitions.")
