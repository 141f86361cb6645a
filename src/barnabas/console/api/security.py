"""Users, ACLs and quotas: who may log in, do what, and how much. A part that the user may not see says so."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, Final

from starlette.routing import Route

from barnabas.clients.errors import RequestRefused
from barnabas.console.api.answers import InvalidQuestion, NotFound, body_of, changed, endpoint, field, session_of
from barnabas.machines.security.acls import (
    CLUSTER_NAME,
    Acl,
    AclFilter,
    AclResourceType,
    Entry,
    Operation,
    PatternType,
    Permission,
    ResourcePattern,
)
from barnabas.machines.security.scram import BY_TITLE, LEAST_ITERATIONS

if TYPE_CHECKING:
    from collections.abc import Callable

    from starlette.requests import Request

    from barnabas.clients.admin.cluster_admin import ClusterAdmin

ANY: Final = AclFilter(AclResourceType.ANY, None, PatternType.ANY, None, None, Operation.ANY, Permission.ANY)
KINDS: Final = ("user", "client-id", "ip")
QUOTAS: Final = (
    "producer_byte_rate",
    "consumer_byte_rate",
    "request_percentage",
    "controller_mutation_rate",
    "connection_creation_rate",
)


@endpoint
async def listing(request: Request) -> object:
    """All that the user may see."""
    return await session_of(request).observer.ask(
        lambda cluster: {
            "users": _or_reason(lambda: _users(cluster)),
            "acls": _or_reason(lambda: _acls(cluster)),
            "quotas": _or_reason(lambda: _quotas(cluster)),
            "operations": [each.name for each in Operation if each > Operation.ANY],
            "quota_names": QUOTAS,
            "audit": request.app.state.audit.newest(50) if session_of(request).user is None else [],
        }
    )


def _or_reason(ask: Callable[[], list[dict[str, Any]]]) -> dict[str, Any]:
    try:
        return {"rows": ask()}
    except RequestRefused as error:
        return {"rows": [], "refusal": str(error), "code": error.code.name}


def _users(cluster: ClusterAdmin) -> list[dict[str, Any]]:
    return [{"name": user.name, "mechanisms": dict(user.mechanisms)} for user in cluster.users.describe()]


def _acls(cluster: ClusterAdmin) -> list[dict[str, Any]]:
    return [
        {
            "kind": acl.pattern.resource_type.name,
            "name": acl.pattern.name,
            "pattern": acl.pattern.pattern_type.name,
            "principal": acl.entry.principal,
            "host": acl.entry.host,
            "operation": acl.entry.operation.name,
            "permission": acl.entry.permission.name,
        }
        for acl in cluster.acls.matching(ANY)
    ]


def _quotas(cluster: ClusterAdmin) -> list[dict[str, Any]]:
    return [{"entity": dict(quota.entity), "values": dict(quota.values)} for quota in cluster.quotas.describe()]


@endpoint
async def add_user(request: Request) -> object:
    """Let somebody log in, or give them another password."""
    body = await body_of(request)
    name, password, title = field(body, "name", str), field(body, "password", str), field(body, "mechanism", str)
    if not name or not password or title not in BY_TITLE:
        raise InvalidQuestion("A user has a name, a password and a mechanism of SCRAM.")
    await changed(
        request,
        "set password of user",
        name,
        lambda cluster: cluster.users.add(name, BY_TITLE[title], password, LEAST_ITERATIONS),
        mechanism=title,
    )
    return {}


@endpoint
async def delete_user(request: Request) -> object:
    """Let somebody log in no more; the name has to be typed."""
    body = await body_of(request)
    name = field(body, "name", str)
    if body.get("confirm") != name:
        raise InvalidQuestion(f"Type the name {name} to confirm.")

    def run(cluster: ClusterAdmin) -> None:
        found = next((user for user in cluster.users.describe() if user.name == name), None)
        if found is None:
            raise NotFound(f"There is no user {name}.")
        cluster.users.delete(name, [BY_TITLE[each] for each in found.mechanisms])

    await changed(request, "delete user", name, run)
    return {}


def _acl(body: dict[str, Any]) -> Acl:
    texts = {name: field(body, name, str) for name in ("kind", "name", "pattern", "principal", "operation")}
    try:
        kind = AclResourceType[texts["kind"]]
        pattern = PatternType.LITERAL if kind is AclResourceType.CLUSTER else PatternType[texts["pattern"]]
        name = CLUSTER_NAME if kind is AclResourceType.CLUSTER else texts["name"]
        operation, permission = Operation[texts["operation"]], Permission[str(body.get("permission", "ALLOW"))]
    except KeyError as error:
        raise InvalidQuestion(f"{error.args[0]} is not known.") from error
    for found in (kind, pattern, operation, permission):
        if found.name in ("ANY", "MATCH", "UNKNOWN"):  # which would be a filter, of more than one
            raise InvalidQuestion(f"An ACL is of one thing: it cannot have {found.name}.")
    if not name or ":" not in texts["principal"]:
        raise InvalidQuestion("An ACL names a resource, and a principal such as User:alice.")
    host = str(body.get("host") or "*")
    return Acl(ResourcePattern(kind, name, pattern), Entry(texts["principal"], host, operation, permission))


@endpoint
async def add_acl(request: Request) -> object:
    """Allow or deny something."""
    acl = _acl(await body_of(request))
    await changed(request, "add ACL for", acl.entry.principal, lambda cluster: cluster.acls.create([acl]), acl=str(acl))
    return {}


@endpoint
async def delete_acl(request: Request) -> object:
    """Remove one ACL."""
    acl = _acl(await body_of(request))
    pattern, entry = acl
    exactly = AclFilter(
        pattern.resource_type,
        pattern.name,
        pattern.pattern_type,
        entry.principal,
        entry.host,
        entry.operation,
        entry.permission,
    )
    await changed(
        request, "remove ACL of", entry.principal, lambda cluster: cluster.acls.delete([exactly]), acl=str(acl)
    )
    return {}


@endpoint
async def set_quota(request: Request) -> object:
    """Set or remove one quota of an entity."""
    body = await body_of(request)
    entity, name, value = body.get("entity"), field(body, "quota", str), body.get("value")
    if not isinstance(entity, dict) or not entity or not set(entity) <= set(KINDS) or name not in QUOTAS:
        raise InvalidQuestion("A quota is of users, client ids or addresses, and has one of Kafka's names.")
    if not all(each is None or isinstance(each, str) for each in entity.values()):
        raise InvalidQuestion("A quota is of a name, or of null for all who have none of their own.")
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if value is not None and not (is_number and 0 < value <= sys.float_info.max):
        raise InvalidQuestion("A quota is a number above 0.")
    changes = {name: None if value is None else float(value)}
    await changed(
        request,
        "change quota of",
        ", ".join(f"{kind} {each or 'default'}" for kind, each in entity.items()),
        lambda cluster: cluster.quotas.alter(entity, changes),
        quota=name,
        value=value,
    )
    return {}


ROUTES = (
    Route("/api/security", listing),
    Route("/api/security/users", add_user, methods=["POST"]),
    Route("/api/security/users", delete_user, methods=["DELETE"]),
    Route("/api/security/acls", add_acl, methods=["POST"]),
    Route("/api/security/acls", delete_acl, methods=["DELETE"]),
    Route("/api/security/quotas", set_quota, methods=["POST"]),
)
