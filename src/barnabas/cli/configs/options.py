"""The options of `barnabas configs`, and Kafka's rules about which of them go together."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from barnabas.cli.common.combinations import Actions, all_given, at_most_one, flag, needs
from barnabas.cli.common.connection import ConnectionOptions
from barnabas.clients.admin.configs import DEFAULT_ENTITY, EntityType

if TYPE_CHECKING:
    from pathlib import Path

ENTITY_TYPES = {kind.title: kind for kind in EntityType}
SHORT_FORMS = {
    "topic": EntityType.TOPICS,
    "broker": EntityType.BROKERS,
    "broker_logger": EntityType.BROKER_LOGGERS,
    "group": EntityType.GROUPS,
    "client_metrics": EntityType.CLIENT_METRICS,
}
"""Options that name an entity and its type at once."""
CHANGES = ("add_config", "add_config_file", "delete_config")
ACTIONS = Actions(("describe", "alter"), goes_with={"all": ("describe",), **dict.fromkeys(CHANGES, ("alter",))})


@dataclass(frozen=True, kw_only=True)
class Options(ConnectionOptions):
    """The options of `barnabas configs`."""

    describe: bool
    alter: bool
    all: bool
    entity_type: str | None
    entity_name: str | None
    entity_default: bool
    topic: str | None
    broker: str | None
    broker_defaults: bool
    broker_logger: str | None
    group: str | None
    client_metrics: str | None
    add_config: str | None
    add_config_file: Path | None
    delete_config: tuple[str, ...]
    as_json: bool

    @property
    def short_forms(self) -> list[str]:
        """Those of the short forms that were given."""
        return all_given(self, (*SHORT_FORMS, "broker_defaults"))

    @property
    def kind(self) -> EntityType:
        """What the settings belong to."""
        if self.entity_type is not None:
            return ENTITY_TYPES[self.entity_type]
        return EntityType.BROKERS if self.broker_defaults else SHORT_FORMS[self.short_forms[0]]

    @property
    def name(self) -> str | None:
        """Which one; None for all of them."""
        if self.entity_default or self.broker_defaults:
            return DEFAULT_ENTITY
        if self.entity_name is not None:
            return self.entity_name
        name: str | None = getattr(self, self.short_forms[0]) if self.short_forms else None
        return name

    def check(self) -> None:
        """Refuse options that do not go together, by Kafka's rules."""
        ACTIONS.check(self)
        given = self.short_forms
        if len(given) + (self.entity_type is not None) != 1:
            raise click.UsageError("Give --entity-type, or one of --topic, --broker, --group and the like.")
        if given and (self.entity_name is not None or self.entity_default):
            raise click.UsageError(f"{flag(given[0])} names the entity: leave out --entity-...")
        at_most_one(self, "entity_name", "entity_default")
        if self.entity_default and self.kind is not EntityType.BROKERS:
            raise click.UsageError(f"There are no defaults for {self.kind.title}: --entity-default is for brokers.")
        if self.kind.of_one_broker and self.name and not self.name.isdecimal():
            raise click.UsageError(f"{self.name} is not the id of a broker, which is a number.")
        if self.kind is EntityType.BROKER_LOGGERS and self.name is None:
            raise click.UsageError("broker-loggers needs --entity-name, the id of a broker.")
        if self.alter:
            self._check_alter()

    def _check_alter(self) -> None:
        if self.name is None:
            raise click.UsageError(f"--alter of {self.kind.title} needs --entity-name.")
        at_most_one(self, "add_config", "add_config_file")
        needs(self, "alter", *CHANGES)
