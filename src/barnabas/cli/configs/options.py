"""The options of `barnabas configs`, and Kafka's rules about which of them go together."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from barnabas.cli.common.combinations import Actions, all_given, at_most_one, flag, needs
from barnabas.cli.quotas.entity import TYPES, EntityOptions
from barnabas.clients.admin.configs import DEFAULT_ENTITY, EntityType

if TYPE_CHECKING:
    from pathlib import Path

ENTITY_TYPES = {kind.title: kind for kind in EntityType}
ALL_TYPES = (*ENTITY_TYPES, *TYPES)
"""With those that have quotas."""
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
class Options(EntityOptions):
    """The options of `barnabas configs`."""

    describe: bool
    alter: bool
    all: bool
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
        if self.entity_type:
            return ENTITY_TYPES[self.entity_type[0]]
        return EntityType.BROKERS if self.broker_defaults else SHORT_FORMS[self.short_forms[0]]

    @property
    def name(self) -> str | None:
        """Which one; None for all of them."""
        if self.entity_default or self.broker_defaults:
            return DEFAULT_ENTITY
        if self.entity_name:
            return self.entity_name[0]
        name: str | None = getattr(self, self.short_forms[0]) if self.short_forms else None
        return name

    def check(self) -> None:
        """Refuse options that do not go together, by Kafka's rules."""
        ACTIONS.check(self)
        given = self.short_forms
        if self.quota_types:
            self._check_quotas()
            return
        if len(given) + len(self.entity_type) != 1:
            raise click.UsageError("Give --entity-type, or one of --topic, --broker, --group and the like.")
        if len(self.entity_name) > 1:
            raise click.UsageError("Give --entity-name once.")
        if given and (self.entity_name or self.entity_default):
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

    def _check_quotas(self) -> None:
        """Refuse what does not go together where quotas are meant."""
        if self.short_forms:
            raise click.UsageError(f"{flag(self.short_forms[0])} has no quotas: leave it out.")
        self.check_named(self.quota_entity(), self.alter)
        at_most_one(self, "add_config", "add_config_file")
        needs(self, "alter", *CHANGES)

    def _check_alter(self) -> None:
        if self.name is None:
            raise click.UsageError(f"--alter of {self.kind.title} needs --entity-name.")
        at_most_one(self, "add_config", "add_config_file")
        needs(self, "alter", *CHANGES)
