"""The client quotas of a cluster: how much users, client ids and addresses may use."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from barnabas.clients.errors import RequestRefused
from barnabas.machines.security.quota_entities import MatchType
from barnabas.model.errors import ErrorCode
from barnabas.model.permissions import on_cluster

if TYPE_CHECKING:
    from collections.abc import Mapping

    from barnabas.clients.wire.connection import WireClient
    from barnabas.model.permissions import Action


class Quota(NamedTuple):
    """What one entity may use."""

    entity: Mapping[str, str | None]
    """Names by type ("user", "client-id", "ip"); None is the default."""
    values: Mapping[str, float]


class Quotas:
    """The client quotas of a cluster."""

    def __init__(self, wire: WireClient) -> None:
        self._wire = wire

    def describe(self, wanted: Mapping[str, str | None] | None = None) -> list[Quota]:
        """The quotas of entities that have just these types; of all, if none are given. Raises RequestRefused.

        `wanted` has a name for each type, "" for the default, None for any.
        """
        from kio.schema.describe_client_quotas.v1.request import ComponentData, DescribeClientQuotasRequest
        from kio.static.primitive import i8

        components = tuple(
            ComponentData(entity_type=kind, match_type=i8(_match_type(name)), match=name or None)
            for kind, name in (wanted or {}).items()
        )
        answer = self._wire.ask(DescribeClientQuotasRequest(components=components, strict=bool(components)))
        _check(answer.error_code, answer.error_message, on_cluster("list quotas", "DescribeConfigs"))
        found = [
            Quota(
                {part.entity_type: part.entity_name for part in entry.entity},
                {value.key: value.value for value in sorted(entry.values, key=lambda value: value.key)},
            )
            for entry in answer.entries or ()
        ]
        return sorted(found, key=lambda quota: [(kind, name or "") for kind, name in sorted(quota.entity.items())])

    def alter(self, entity: Mapping[str, str | None], changes: Mapping[str, float | None]) -> None:
        """Set quotas of an entity, and remove those whose value is None. Raises RequestRefused."""
        from kio.schema.alter_client_quotas.v1.request import AlterClientQuotasRequest, EntityData, EntryData, OpData
        from kio.static.primitive import f64

        entry = EntryData(
            entity=tuple(EntityData(entity_type=kind, entity_name=name) for kind, name in entity.items()),
            ops=tuple(
                OpData(key=key, value=f64(0.0 if value is None else value), remove=value is None)
                for key, value in changes.items()
            ),
        )
        for result in self._wire.ask(AlterClientQuotasRequest(entries=(entry,), validate_only=False)).entries:
            _check(result.error_code, result.error_message, on_cluster("change quotas", "AlterConfigs"))


def _match_type(name: str | None) -> MatchType:
    if name is None:
        return MatchType.ANY
    return MatchType.EXACT if name else MatchType.DEFAULT


def _check(code: ErrorCode, message: str | None, action: Action) -> None:
    if code != ErrorCode.none:
        raise RequestRefused(code, message or code.name.upper(), action)
