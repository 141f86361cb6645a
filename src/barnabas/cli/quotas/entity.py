"""Whom a quota is for, as the flags of kafka-configs say it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import click

from barnabas.cli.common.combinations import all_given, at_most_one
from barnabas.cli.common.connection import ConnectionOptions
from barnabas.cli.common.help import option
from barnabas.machines.security.quota_entities import CLIENT_ID, IP, USER

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

TYPES: Final = {"users": USER, "clients": CLIENT_ID, "ips": IP}
"""The types of entities that have quotas, by kafka-configs's names."""
SHORT: Final = {USER: ("user", "user_defaults"), CLIENT_ID: ("client", "client_defaults"), IP: ("ip", "ip_defaults")}
SHORT_FORMS: Final = tuple(name for pair in SHORT.values() for name in pair)


def entity_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """The flags that name users, client ids and addresses."""
    for decorate in reversed(
        (
            option("--user", metavar="NAME", help="The user.", section="Entity"),
            option("--user-defaults", is_flag=True, help="All users without quotas of their own.", section="Entity"),
            option("--client", metavar="ID", help="The client id, of any user or of --user.", section="Entity"),
            option("--client-defaults", is_flag=True, help="All other client ids.", section="Entity"),
            option("--ip", metavar="ADDRESS", help="The address or host that connects.", section="Entity"),
            option("--ip-defaults", is_flag=True, help="All other addresses.", section="Entity"),
        )
    ):
        command = decorate(command)
    return command


@dataclass(frozen=True, kw_only=True)
class EntityOptions(ConnectionOptions):
    """Options that name whom a quota is for."""

    user: str | None
    user_defaults: bool
    client: str | None
    client_defaults: bool
    ip: str | None
    ip_defaults: bool
    entity_type: tuple[str, ...]
    entity_name: tuple[str, ...]
    entity_default: bool

    @property
    def quota_types(self) -> list[str]:
        """Types that are named and have quotas."""
        return [name for name in self.entity_type if name in TYPES] + all_given(self, SHORT_FORMS)

    def quota_entity(self) -> dict[str, str | None]:
        """By type, a name, "" for the default or None for any. Raises UsageError."""
        named: dict[str, str | None] = {}
        for kind, (name, default) in SHORT.items():
            at_most_one(self, name, default)
            if getattr(self, name) is not None:
                named[kind] = getattr(self, name)
            elif getattr(self, default):
                named[kind] = ""
        if self.entity_type:
            if named:
                raise click.UsageError("Give --entity-type, or --user, --client and --ip, not both.")
            named = self._long_form()
        if IP in named and len(named) > 1:
            raise click.UsageError("A quota of an address is for no user and for no client id.")
        if "" in self.entity_name or "" in (self.user, self.client, self.ip):
            raise click.UsageError("A name must not be empty. For the default, give --user-defaults and the like.")
        return named

    @staticmethod
    def check_named(entity: dict[str, str | None], alter: bool) -> None:
        """Refuse to change what is named by its type alone."""
        if alter and None in entity.values():
            raise click.UsageError("--alter needs a name for each type of entity, or its default.")

    def _long_form(self) -> dict[str, str | None]:
        if len(set(self.entity_type)) < len(self.entity_type) or not set(self.entity_type) <= TYPES.keys():
            raise click.UsageError("Give --entity-type once, or twice for users and clients.")
        if len(self.entity_name) > len(self.entity_type):
            raise click.UsageError("There are more --entity-name than --entity-type.")
        if self.entity_default and self.entity_name:
            raise click.UsageError("To name one and take the default of the other, give --user and --client-defaults.")
        fill = "" if self.entity_default else None
        names = [*self.entity_name, *[fill] * (len(self.entity_type) - len(self.entity_name))]
        return {TYPES[kind]: name for kind, name in zip(self.entity_type, names, strict=True)}
