"""Client quotas as they are set: whom a quota is for, which keys it may have, and which of them a filter means.

A quota is for a user, a client id, both together, or an address. Each of them may be the default, which counts where
nobody is named. Checks and their words are those of Apache Kafka's controller.
"""

from __future__ import annotations

import math
from enum import IntEnum
from typing import TYPE_CHECKING, Final, NamedTuple

from barnabas.model.errors import InvalidRequest, UnsupportedVersion

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from barnabas.machines.controller.image import ClusterImage, ConfigResource

PRODUCER_BYTE_RATE: Final = "producer_byte_rate"
CONSUMER_BYTE_RATE: Final = "consumer_byte_rate"
REQUEST_PERCENTAGE: Final = "request_percentage"
CONTROLLER_MUTATION_RATE: Final = "controller_mutation_rate"
CONNECTION_CREATION_RATE: Final = "connection_creation_rate"

CLIENT_KEYS: Final = (CONSUMER_BYTE_RATE, CONTROLLER_MUTATION_RATE, PRODUCER_BYTE_RATE, REQUEST_PERCENTAGE)
"""Of users and client ids."""
IP_KEYS: Final = (CONNECTION_CREATION_RATE,)
WHOLE: Final = {
    PRODUCER_BYTE_RATE: (2**63 - 1, "a LONG"),
    CONSUMER_BYTE_RATE: (2**63 - 1, "a LONG"),
    CONNECTION_CREATION_RATE: (2**31 - 1, "an INT"),
}
"""Keys that have whole numbers: the largest, and what Kafka calls such a number."""
ALL_KEYS: Final = frozenset(CLIENT_KEYS) | frozenset(IP_KEYS)

DEFAULT: Final = ""
"""As a name: the default, which has no name of its own."""
USER: Final = "user"
CLIENT_ID: Final = "client-id"
IP: Final = "ip"
_ROUNDING: Final = 1e-6


class QuotaEntity(NamedTuple):
    """Whom a quota is for; what is None does not matter, and "" is the default."""

    user: str | None = None
    client_id: str | None = None
    ip: str | None = None

    @property
    def parts(self) -> dict[str, str | None]:
        """By type, the names as requests have them: None for the default."""
        named = {CLIENT_ID: self.client_id, USER: self.user, IP: self.ip}  # in the order that Kafka's answers have
        return {kind: name or None for kind, name in named.items() if name is not None}

    @property
    def keys(self) -> tuple[str, ...]:
        """What can be set for it."""
        return CLIENT_KEYS if self.ip is None else IP_KEYS


def in_kafkas_words(parts: Mapping[str, str | None]) -> str:
    """An entity as Kafka's messages have it.

    >>> in_kafkas_words({"client-id": None, "user": "alice"})
    'ClientQuotaEntity(entries={client-id=null, user=alice})'
    """
    named = ", ".join(f"{kind}={'null' if name is None else name}" for kind, name in parts.items())
    return f"ClientQuotaEntity(entries={{{named}}})"


def entity_of(parts: Mapping[str, str | None]) -> QuotaEntity:
    """The entity that a request names, by types. Raises InvalidRequest."""
    if not parts:
        raise InvalidRequest("Invalid empty client quota entity")
    for kind, name in parts.items():
        if kind not in (USER, CLIENT_ID, IP):
            raise InvalidRequest(f"Unhandled client quota entity type: {kind}")
        if name == "":
            raise InvalidRequest(f"Empty {kind} not supported")
    if IP in parts and len(parts) > 1:
        raise InvalidRequest(
            "Invalid quota entity combination, IP entity shouldnot be combined with User or ClientId"  # Kafka's words
        )
    named = {kind: name or DEFAULT for kind, name in parts.items()}
    return QuotaEntity(named.get(USER), named.get(CLIENT_ID), named.get(IP))


def check_value(entity: QuotaEntity, key: str, value: float) -> None:
    """Refuse what cannot be a quota of this entity, with InvalidRequest. Kafka takes infinity and what is no number."""
    if key not in entity.keys:
        raise InvalidRequest(f"Invalid configuration key {key}")
    if not value > (_ROUNDING if key in WHOLE else 0):  # else it would be stored as 0, and count for nothing
        raise InvalidRequest(f"Quota {key} must be greater than 0")
    if key not in WHOLE and math.isinf(value):
        raise InvalidRequest(f"Quota {key} must be finite. Remove it instead.")
    if key in WHOLE:
        most, kind = WHOLE[key]
        if value > most:
            raise InvalidRequest(f"Proposed value for {key} is too large for {kind}.")
        if abs(math.floor(value + _ROUNDING) - value) > _ROUNDING:
            raise InvalidRequest(f"{key} cannot be a fractional value.")


def as_text(key: str, value: float) -> str:
    """A quota as it is stored: a whole number where its key wants one.

    >>> as_text("producer_byte_rate", 1024.0), as_text("request_percentage", 50.0)
    ('1024', '50.0')
    """
    return str(math.floor(value + _ROUNDING)) if key in WHOLE else str(float(value))


def stored_quotas(settings: Mapping[str, str]) -> dict[str, float]:
    """The quotas among what is stored of a user, a client id or an address: numbers above zero."""
    found: dict[str, float] = {}
    for key in ALL_KEYS & settings.keys():
        try:
            value = float(settings[key])
        except ValueError:
            continue
        if 0 < value < math.inf:
            found[key] = value
    return found


def entity_of_resource(resource: ConfigResource) -> QuotaEntity | None:
    """Whose quotas a resource's settings hold; None if they hold none."""
    match resource.kind:
        case "users":
            return QuotaEntity(resource.name, resource.client_id)
        case "clients":
            return QuotaEntity(client_id=resource.name)
        case "ips":
            return QuotaEntity(ip=resource.name)
    return None


def quotas_of(image: ClusterImage) -> Iterator[tuple[QuotaEntity, dict[str, float]]]:
    """All quotas that are set in a cluster."""
    for resource, settings in image.configs.items():
        entity = entity_of_resource(resource)
        if entity is not None and (quotas := stored_quotas(settings)):
            yield entity, quotas


class MatchType(IntEnum):
    """What a filter says of one type."""

    EXACT = 0
    DEFAULT = 1
    ANY = 2


class Match(NamedTuple):
    """What a filter says of the entities' name of one type."""

    match_type: MatchType
    name: str | None = None

    def means(self, name: str) -> bool:
        """Whether it is this name; "" is the default, which nobody is called."""
        if self.match_type is MatchType.ANY:
            return True
        return name == (DEFAULT if self.match_type is MatchType.DEFAULT else self.name or None)


class QuotaFilter(NamedTuple):
    """Which quotas somebody wants to see."""

    wanted: Mapping[str, Match]
    """By type."""
    strict: bool
    """Whether entities that have other types, too, are left out."""

    def matches(self, entity: QuotaEntity) -> bool:
        """Whether an entity is meant. An empty filter means all, a strict one none."""
        parts = entity.parts
        if self.strict and (parts.keys() != self.wanted.keys() or not parts):
            return False
        return all(kind in parts and match.means(parts[kind] or DEFAULT) for kind, match in self.wanted.items())


def quota_filter(components: Iterable[tuple[str, int, str | None]], *, strict: bool) -> QuotaFilter:
    """A filter, of types, kinds of matches and names. Raises InvalidRequest, UnsupportedVersion."""
    wanted: dict[str, Match] = {}
    for kind, match_type, name in components:
        if not kind:
            raise InvalidRequest("Invalid empty entity type.")
        if kind in wanted:
            raise InvalidRequest(f"Entity type {kind} cannot appear more than once in the filter.")
        if kind not in (USER, CLIENT_ID, IP):
            raise UnsupportedVersion(f"Unsupported entity type {kind}")
        wanted[kind] = _match(match_type, name)
    if IP in wanted and len(wanted) > 1:
        raise InvalidRequest(
            "Invalid entity filter component combination. IP filter component should not be used with user or "
            "clientId filter component."
        )
    return QuotaFilter(wanted, strict)


def _match(match_type: int, name: str | None) -> Match:
    if match_type not in tuple(MatchType):
        raise InvalidRequest(f"Unknown match type {match_type}")
    if match_type == MatchType.EXACT and name is None:
        raise InvalidRequest("Request specified MATCH_TYPE_EXACT, but set match string to null.")
    if match_type != MatchType.EXACT and name is not None:
        kind = "MATCH_TYPE_DEFAULT" if match_type == MatchType.DEFAULT else "MATCH_TYPE_SPECIFIED"
        raise InvalidRequest(f"Request specified {kind}, but also specified a match string.")
    return Match(MatchType(match_type), name)
