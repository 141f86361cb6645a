"""The options of `barnabas reassign-partitions`, and Kafka's rules about which of them go together."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from barnabas.cli.common.combinations import Actions
from barnabas.cli.common.connection import ConnectionOptions

if TYPE_CHECKING:
    from pathlib import Path

    from barnabas.cli.reassign.plans import Plan

DEFAULT_TIMEOUT_MS: Final = 10_000
ACTIONS: Final = Actions(
    ("generate", "execute", "verify", "cancel", "list"),
    goes_with={
        "reassignment_json_file": ("execute", "verify", "cancel"),
        "topics_to_move_json_file": ("generate",),
        "broker_list": ("generate",),
        "disable_rack_aware": ("generate",),
        "additional": ("execute",),
        "throttle": ("execute",),
        "replica_alter_log_dirs_throttle": ("execute",),
        "disallow_replication_factor_change": ("execute",),
        "timeout": ("execute", "cancel"),
        "preserve_throttles": ("verify", "cancel"),
        "as_json": ("verify", "list"),
    },
    needs={
        "generate": ("topics_to_move_json_file", "broker_list"),
        "execute": ("reassignment_json_file",),
        "verify": ("reassignment_json_file",),
        "cancel": ("reassignment_json_file",),
    },
)


@dataclass(frozen=True, kw_only=True)
class Options(ConnectionOptions):
    """The options of `barnabas reassign-partitions`."""

    generate: bool
    execute: bool
    verify: bool
    cancel: bool
    list: bool
    reassignment_json_file: Path | None
    topics_to_move_json_file: Path | None
    broker_list: str | None
    disable_rack_aware: bool
    throttle: int | None
    replica_alter_log_dirs_throttle: int | None
    timeout: int | None
    additional: bool
    preserve_throttles: bool
    disallow_replication_factor_change: bool
    as_json: bool

    @property
    def action(self) -> str:
        """The one action that was asked for."""
        return ACTIONS.chosen(self)

    @property
    def plan(self) -> Plan:
        """What the file of --reassignment-json-file says; raises Failed."""
        from barnabas.cli.reassign.plans import read_plan

        assert self.reassignment_json_file is not None
        return read_plan(self.reassignment_json_file)

    def check(self) -> None:
        """Refuse options that do not go together, by Kafka's rules."""
        ACTIONS.check(self)
