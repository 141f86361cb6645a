"""The options of `barnabas share-groups`, and Kafka's rules about which of them go together."""

from __future__ import annotations

from dataclasses import dataclass

import click

from barnabas.cli.common.combinations import Actions, all_given, exactly_one, needs
from barnabas.cli.groups.options import REPORTS, GroupOptions

SCENARIOS = ("to_earliest", "to_latest", "to_datetime")
ACTIONS = Actions(
    ("list", "describe", "reset_offsets", "delete", "delete_offsets"),
    goes_with={
        "group": ("describe", "reset_offsets", "delete", "delete_offsets"),
        "all_groups": ("describe", "delete"),
        "topic": ("reset_offsets", "delete_offsets"),
        "all_topics": ("reset_offsets",),
        "offsets": ("describe",),
        "members": ("describe",),
        "verbose": ("describe",),
        "in_flight": ("describe",),
        "state": ("list", "describe"),
        **dict.fromkeys((*SCENARIOS, "dry_run", "execute"), ("reset_offsets",)),
    },
)


@dataclass(frozen=True, kw_only=True)
class Options(GroupOptions):
    """The options of `barnabas share-groups`."""

    actions = ACTIONS

    in_flight: bool

    def check(self) -> None:
        """As for other groups; --in-flight is one more thing to show."""
        super().check()
        if self.in_flight and all_given(self, REPORTS):
            raise click.UsageError("--describe takes one of --offsets, --members, --in-flight and --state.")

    def _check_reset(self) -> None:
        super()._check_reset()
        if len(self.group) != 1:
            raise click.UsageError("--reset-offsets takes one --group at a time.")
        exactly_one(self, *SCENARIOS, action="reset_offsets")
        needs(self, "reset_offsets", "topic", "all_topics")
        needs(self, "reset_offsets", "dry_run", "execute")
