"""The options of `barnabas topics`, and Kafka's rules about which of them go together."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from pathlib import Path

ACTIONS = ("create", "list", "describe", "alter", "delete")
REPORTS = (
    "under_replicated_partitions",
    "unavailable_partitions",
    "under_min_isr_partitions",
    "at_min_isr_partitions",
)
ALLOWED_WITH = {
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
}
"""Which actions an option goes with; the others take all of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The command line, one field per option."""

    bootstrap_server: str
    command_config: Path | None
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
        return next(action for action in ACTIONS if getattr(self, action))

    @property
    def report(self) -> bool:
        """Whether only partitions in some trouble are wanted."""
        return any(getattr(self, report) for report in REPORTS)

    def check(self) -> None:
        """Refuse combinations that mean nothing, with Kafka's rules."""
        actions = [action for action in ACTIONS if getattr(self, action)]
        if len(actions) != 1:
            raise click.UsageError("Give exactly one action: --create, --list, --describe, --alter or --delete.")
        for name, allowed in ALLOWED_WITH.items():
            if getattr(self, name) not in (None, False, ()) and self.action not in allowed:
                wanted = " or ".join(f"--{action}" for action in allowed)
                raise click.UsageError(f"{_flag(name)} goes with {wanted}, not with --{self.action}.")
        if self.action in ("create", "alter", "delete") and not self.topic:
            raise click.UsageError(f"--{self.action} needs --topic.")
        if self.describe and self.if_exists and not (self.topic or self.topic_id):
            raise click.UsageError("--if-exists needs --topic or --topic-id.")
        if self.create and self.replica_assignment and (self.partitions or self.replication_factor):
            raise click.UsageError(
                "--replica-assignment says how many partitions and replicas there are: "
                "leave out --partitions and --replication-factor."
            )
        if self.alter and not (self.partitions or self.config or self.delete_config):
            raise click.UsageError("--alter needs --partitions, --config or --delete-config.")
        if self.alter and self.replica_assignment and not self.partitions:
            raise click.UsageError("--alter with --replica-assignment needs --partitions.")
        if self.topics_with_overrides and self.report:
            raise click.UsageError("--topics-with-overrides does not go with a report on partitions.")


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")
