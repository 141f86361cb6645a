"""Quotas, set and shown over the wire."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from tests.support.wire import Connection, plain

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

DESCRIBE_CLIENT_QUOTAS: Final = 48
ALTER_CLIENT_QUOTAS: Final = 49


def alteration(entity: Sequence[tuple[str, str | None]], changes: Sequence[tuple[str, float | None]]) -> dict[str, Any]:
    """An entry of AlterClientQuotas; None as a value removes a quota."""
    return {
        "entity": [{"entity_type": kind, "entity_name": name} for kind, name in entity],
        "ops": [{"key": key, "value": value or 0.0, "remove": value is None} for key, value in changes],
    }


def alter(
    connection: Connection, *entries: dict[str, Any], version: int = 1, validate_only: bool = False
) -> list[dict[str, Any]]:
    """What becomes of alterations."""
    body = {"entries": list(entries), "validate_only": validate_only}
    found: list[dict[str, Any]] = plain(connection.ask(ALTER_CLIENT_QUOTAS, version, body))["entries"]
    return found


def set_quotas(bootstrap: str, entity: Mapping[str, str | None], **quotas: float | None) -> None:
    """Set quotas of an entity, and remove those that are None."""
    with Connection(bootstrap, client_id="setter") as connection:
        [result] = alter(connection, alteration(list(entity.items()), list(quotas.items())))
    assert result["error_code"] == 0, result


def describe(
    connection: Connection, *components: tuple[str, int, str | None], strict: bool = False, version: int = 1
) -> dict[str, Any]:
    """The answer to a filter of types, kinds of matches and names."""
    named = [{"entity_type": kind, "match_type": how, "match": name} for kind, how, name in components]
    body = {"components": named, "strict": strict}
    found: dict[str, Any] = plain(connection.ask(DESCRIBE_CLIENT_QUOTAS, version, body))
    return found
