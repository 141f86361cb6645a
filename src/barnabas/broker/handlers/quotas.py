"""DescribeClientQuotas v0–1 and AlterClientQuotas v0–1: how much users, client ids and addresses may use.

- DescribeClientQuotas: any broker answers from what it knows. A filter names types with an exact name, the default or
  any name; a strict one leaves out entities that have another type, too.
- AlterClientQuotas: only the controller answers; other brokers forward the request. All changes of one entity are made,
  or none. An entity that is named twice is changed as it is named first, and is answered with an error, as by Kafka; so
  is one with a key that is named twice, of which nothing is changed. validate_only changes nothing.

Quotas are kept in the metadata tree, in the paths of Kafka's ZooKeeper mode: /config/users, /config/clients and
/config/ips.
"""

from __future__ import annotations

from collections import Counter
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

from kio.schema.alter_client_quotas.v1.response import AlterClientQuotasResponse
from kio.schema.alter_client_quotas.v1.response import EntityData as AlteredEntity
from kio.schema.alter_client_quotas.v1.response import EntryData as AlteredEntry
from kio.schema.describe_client_quotas.v1.response import DescribeClientQuotasResponse, EntityData, EntryData, ValueData
from kio.static.primitive import f64

from barnabas.broker.security.host_lookups import literal
from barnabas.broker.serving.long_answers import portions
from barnabas.broker.serving.throttle import NO_THROTTLE
from barnabas.machines.controller.image import ConfigResource
from barnabas.machines.security.quota_entities import (
    IP,
    QuotaEntity,
    as_text,
    check_value,
    entity_of,
    in_kafkas_words,
    quota_filter,
    quotas_of,
)
from barnabas.model.errors import ApiError, ErrorCode, InvalidRequest

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from kio.schema.alter_client_quotas.v1.request import AlterClientQuotasRequest, OpData
    from kio.schema.alter_client_quotas.v1.request import EntityData as RequestedEntity
    from kio.schema.describe_client_quotas.v1.request import DescribeClientQuotasRequest

    from barnabas.broker.context import BrokerContext
    from barnabas.broker.serving.caller import Caller

    Edits = Mapping[ConfigResource, Callable[[Mapping[str, str]], dict[str, str]]]

LOOK_UP_SECONDS: Final = 10.0
"""For all hosts of a request."""
Parts = tuple[tuple[str, str | None], ...]
"""Types and names of an entity."""


async def describe_client_quotas(
    broker: BrokerContext, request: DescribeClientQuotasRequest, caller: Caller
) -> DescribeClientQuotasResponse:
    """List the quotas that a filter means."""
    try:
        wanted = quota_filter(
            ((one.entity_type, one.match_type, one.match) for one in request.components), strict=request.strict
        )
    except ApiError as error:
        return DescribeClientQuotasResponse(
            throttle_time=NO_THROTTLE, error_code=error.code, error_message=str(error), entries=None
        )
    found = [(entity, quotas) for entity, quotas in quotas_of(broker.metadata.image) if wanted.matches(entity)]
    return DescribeClientQuotasResponse(
        throttle_time=NO_THROTTLE,
        error_code=ErrorCode.none,
        error_message="",
        entries=tuple(await broker.long_answers.each(found, _described)),
    )


def _described(found: tuple[QuotaEntity, Mapping[str, float]]) -> EntryData:
    entity, quotas = found
    return EntryData(
        entity=tuple(EntityData(entity_type=kind, entity_name=name) for kind, name in entity.parts.items()),
        values=tuple(ValueData(key=key, value=f64(value)) for key, value in quotas.items()),
    )


class QuotaAlteration(NamedTuple):
    """What a request changes of one entity; None as a value removes a quota."""

    changes: dict[str, float | None]
    is_clear: bool
    """Whether no key is named twice."""


async def alter_client_quotas(
    broker: BrokerContext, request: AlterClientQuotasRequest, caller: Caller
) -> AlterClientQuotasResponse:
    """Set and remove quotas."""
    named = [_parts(entry.entity) for entry in request.entries]
    times = Counter(named)
    alterations: dict[Parts, QuotaAlteration] = {}
    for parts, entry in zip(named, request.entries, strict=True):
        alterations.setdefault(parts, _alteration(entry.ops))
    errors: dict[Parts, ApiError | None] = {}
    edits: dict[ConfigResource, Callable[[Mapping[str, str]], dict[str, str]]] = {}
    whose: dict[ConfigResource, Parts] = {}
    known = await _known_hosts(broker, alterations)
    for parts, alteration in alterations.items():
        errors[parts] = None
        try:
            if not alteration.is_clear:
                raise _repeated(parts)
            resource = _resource(_checked(dict(parts), known))
            edits[resource] = partial(_altered, resource, alteration.changes)
            whose[resource] = parts
            if times[parts] > 1:
                raise _repeated(parts)
        except ApiError as error:
            errors[parts] = error
    for some in portions(list(edits.items())):
        for resource, failure in (await _edited(broker, dict(some), request.validate_only)).items():
            errors[whose[resource]] = failure or errors[whose[resource]]
    return AlterClientQuotasResponse(
        throttle_time=NO_THROTTLE, entries=tuple(_result(parts, error) for parts, error in errors.items())
    )


async def _edited(broker: BrokerContext, edits: Edits, validate_only: bool) -> dict[ConfigResource, ApiError | None]:
    """Make the changes, or see whether they could be made; gives what went wrong with each."""
    if not validate_only:
        return await broker.controller.edit_configs(edits)
    errors: dict[ConfigResource, ApiError | None] = {}
    for resource, edit in edits.items():
        try:
            errors[resource] = None
            edit(broker.metadata.image.config(resource))
        except ApiError as error:
            errors[resource] = error
    return errors


def _parts(entity: Sequence[RequestedEntity]) -> Parts:
    """The last name of each type, in the order that Kafka has them in."""
    named = {one.entity_type: one.entity_name for one in entity}
    return tuple(sorted(named.items(), key=lambda item: (item[0] == IP, item[0])))


def _alteration(ops: Sequence[OpData]) -> QuotaAlteration:
    changes = {op.key: None if op.remove else float(op.value) for op in ops}
    return QuotaAlteration(changes, len(changes) == len(ops))


def _repeated(parts: Parts) -> InvalidRequest:
    return InvalidRequest(f"Ignoring duplicate entity {in_kafkas_words(dict(parts))}")


async def _known_hosts(broker: BrokerContext, entities: Iterable[Parts]) -> frozenset[str]:
    """Of the hosts that a request names, those that have an address. Nothing else waits while they are looked up."""
    hosts = {name for parts in entities for kind, name in parts if kind == IP and name and not literal(name)}
    found = await broker.quotas.hosts.find(hosts, LOOK_UP_SECONDS)
    return frozenset(host for host in hosts if found.get(host))


def _checked(parts: Mapping[str, str | None], known_hosts: Collection[str]) -> QuotaEntity:
    """The entity that a request names. Raises InvalidRequest."""
    entity = entity_of(parts)
    if entity.ip and not literal(entity.ip) and (entity.ip not in known_hosts or "/" in entity.ip):
        raise InvalidRequest(f"{entity.ip} is not a valid IP or resolvable host.")
    return entity


def _resource(entity: QuotaEntity) -> ConfigResource:
    """Where the quotas of an entity are kept."""
    if entity.user is not None:
        return ConfigResource("users", entity.user, entity.client_id)
    if entity.client_id is not None:
        return ConfigResource("clients", entity.client_id)
    return ConfigResource("ips", entity.ip or "")


def _altered(
    resource: ConfigResource, changes: Mapping[str, float | None], before: Mapping[str, str]
) -> dict[str, str]:
    """What is kept of an entity after the changes; raises InvalidRequest for the first that cannot be made."""
    entity = QuotaEntity(ip="") if resource.kind == "ips" else QuotaEntity(user="")
    after = dict(before)
    for key, value in changes.items():
        if value is None:
            if key in entity.keys:  # what else is kept of a user is no quota
                after.pop(key, None)
        else:
            check_value(entity, key, value)
            after[key] = as_text(key, value)
    return after


def _result(parts: Parts, error: ApiError | None) -> AlteredEntry:
    return AlteredEntry(
        error_code=ErrorCode.none if error is None else error.code,
        error_message=None if error is None else str(error),
        entity=tuple(AlteredEntity(entity_type=kind, entity_name=name) for kind, name in parts),
    )
