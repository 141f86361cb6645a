"""The options of `barnabas groups` and `barnabas share-groups`, and Kafka's rules about which of them go together."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import click

from barnabas.cli.common.combinations import Actions, all_given, at_most_one, exactly_one, flag, needs
from barnabas.cli.common.connection import ConnectionOptions

if TYPE_CHECKING:
    from pathlib import Path

SCENARIOS = (
    "to_earliest",
    "to_latest",
    "to_current",
    "to_offset",
    "shift_by",
    "to_datetime",
    "by_duration",
    "from_file",
)
REPORTS = ("offsets", "members", "state")
ACTIONS = Actions(
    ("list", "describe", "reset_offsets", "delete", "delete_offsets", "validate_regex"),
    goes_with={
        "group": ("describe", "reset_offsets", "delete", "delete_offsets"),
        "all_groups": ("describe", "reset_offsets", "delete"),
        "topic": ("reset_offsets", "delete_offsets"),
        "all_topics": ("reset_offsets",),
        "offsets": ("describe",),
        "members": ("describe",),
        "verbose": ("describe",),
        "state": ("list", "describe"),
        "type": ("list",),
        **dict.fromkeys((*SCENARIOS, "dry_run", "execute", "export"), ("reset_offsets",)),
    },
)


@dataclass(frozen=True, kw_only=True)
class GroupOptions(ConnectionOptions):
    """The options that both commands have. `state` is "" when given without a value."""

    actions: ClassVar[Actions]

    timeout: int
    list: bool
    describe: bool
    reset_offsets: bool
    delete: bool
    delete_offsets: bool
    group: tuple[str, ...]
    all_groups: bool
    topic: tuple[str, ...]
    all_topics: bool
    offsets: bool
    members: bool
    state: str | None
    verbose: bool
    to_earliest: bool
    to_latest: bool
    to_datetime: str | None
    dry_run: bool
    execute: bool
    as_json: bool

    @property
    def action(self) -> str:
        """The one action that was asked for."""
        return self.actions.chosen(self)

    def check(self) -> None:
        """Refuse options that do not go together, by Kafka's rules."""
        self.actions.check(self)
        at_most_one(self, "group", "all_groups")
        if self.action in self.actions.goes_with["group"] and not (self.group or self.all_groups):
            takes_all = self.action in self.actions.goes_with["all_groups"]
            raise click.UsageError(
                f"{flag(self.action)} needs {'--group or --all-groups' if takes_all else '--group'}."
            )
        if self.describe and len(all_given(self, REPORTS)) > 1:
            raise click.UsageError("--describe takes one of --offsets, --members and --state.")
        if self.describe and self.state:
            raise click.UsageError(f"--describe shows the state of a group: leave out {self.state} after --state.")
        if self.delete_offsets and (not self.topic or len(self.group) != 1):
            raise click.UsageError("--delete-offsets needs one --group, and at least one --topic.")
        if self.reset_offsets:
            self._check_reset()

    def _check_reset(self) -> None:
        at_most_one(self, "dry_run", "execute")
        at_most_one(self, "topic", "all_topics")


@dataclass(frozen=True, kw_only=True)
class Options(GroupOptions):
    """The options of `barnabas groups`. `type` is "" when given without a value."""

    actions = ACTIONS

    validate_regex: str | None
    type: str | None
    to_current: bool
    to_offset: int | None
    shift_by: int | None
    by_duration: str | None
    from_file: Path | None
    export: bool

    def _check_reset(self) -> None:
        super()._check_reset()
        exactly_one(self, *SCENARIOS, action="reset_offsets")
        needs(self, "reset_offsets", "topic", "all_topics", "from_file")
        if self.export and self.as_json:
            raise click.UsageError("Give --export (CSV) or --json, not both.")
