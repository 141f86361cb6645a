"""DescribeAcls v1–3, CreateAcls v1–3 and DeleteAcls v1–3: the rules about who may do what.

- A broker without an authorizer has no ACLs: SECURITY_DISABLED.
- DescribeAcls answers from the rules that this broker judges by, grouped by resource pattern.
- CreateAcls: each ACL has its own result. An unknown or ANY type, pattern, operation or permission is an
  INVALID_REQUEST; so are an empty name, a principal without a type, and for the cluster another name than
  `kafka-cluster`. An ACL that is there already is no error.
- DeleteAcls removes all ACLs that match a filter, and gives them back; each filter has its own result. A filter
  that includes a resource whose ACLs cannot be read removes nothing, and is an UNKNOWN_SERVER_ERROR.
- Only the controller changes ACLs; other brokers forward the request to it. It answers when they are stored and in
  force on the controller; other brokers have them a moment later.
"""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING, Any, TypeVar

from kio.schema.create_acls.v3.response import AclCreationResult, CreateAclsResponse
from kio.schema.delete_acls.v3.response import DeleteAclsFilterResult, DeleteAclsMatchingAcl, DeleteAclsResponse
from kio.schema.describe_acls.v3.response import AclDescription, DescribeAclsResource, DescribeAclsResponse
from kio.static.primitive import i8

from barnabas.broker.serving.throttle import NO_THROTTLE
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
from barnabas.metadata import acls as tree
from barnabas.metadata.stores.store import StoreError
from barnabas.metadata.znodes import MalformedNode
from barnabas.model.config.authorizer import check_principal
from barnabas.model.errors import (
    ApiError,
    ErrorCode,
    InvalidRequest,
    RequestTimedOut,
    SecurityDisabled,
    UnknownServerError,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from kio.schema.create_acls.v3.request import AclCreation, CreateAclsRequest
    from kio.schema.delete_acls.v3.request import DeleteAclsRequest
    from kio.schema.describe_acls.v3.request import DescribeAclsRequest

    from barnabas.broker.context import BrokerContext
    from barnabas.broker.permissions.following import AclFollower
    from barnabas.broker.serving.caller import Caller

E = TypeVar("E", bound=IntEnum)

DISABLED = "No Authorizer is configured."


async def describe_acls(broker: BrokerContext, request: DescribeAclsRequest, caller: Caller) -> DescribeAclsResponse:
    """List the ACLs that match a filter."""
    if broker.permissions is None:
        raise SecurityDisabled("No Authorizer is configured on the broker.")
    wanted = _filter(request)
    if wanted.is_unknown:
        raise InvalidRequest("The AclBindingFilter must not contain UNKNOWN elements.")
    rules = broker.permissions.rules
    found: dict[ResourcePattern, list[Entry]] = {}

    def look(acl: Acl) -> None:
        if wanted.matches(acl):
            found.setdefault(acl.pattern, []).append(acl.entry)

    await broker.long_answers.each(rules, look)
    resources = await broker.long_answers.each(
        sorted(found), lambda pattern: _described(pattern, found[pattern]), lambda pattern: len(found[pattern])
    )
    return DescribeAclsResponse(
        throttle_time=NO_THROTTLE, error_code=ErrorCode.none, error_message=None, resources=tuple(resources)
    )


def _filter(request: Any) -> AclFilter:
    return AclFilter(
        request.resource_type_filter,
        request.resource_name_filter,
        request.pattern_type_filter,
        request.principal_filter,
        request.host_filter,
        request.operation,
        request.permission_type,
    )


def _described(pattern: ResourcePattern, entries: Iterable[Entry]) -> DescribeAclsResource:
    return DescribeAclsResource(
        resource_type=i8(pattern.resource_type),
        resource_name=pattern.name,
        pattern_type=i8(pattern.pattern_type),
        acls=tuple(
            AclDescription(
                principal=entry.principal,
                host=entry.host,
                operation=i8(entry.operation),
                permission_type=i8(entry.permission),
            )
            for entry in sorted(entries)
        ),
    )


async def create_acls(broker: BrokerContext, request: CreateAclsRequest, caller: Caller) -> CreateAclsResponse:
    """Store ACLs."""
    follower = broker.acls
    if follower is None:
        refused = AclCreationResult(error_code=ErrorCode.security_disabled, error_message=DISABLED)
        return CreateAclsResponse(throttle_time=NO_THROTTLE, results=(refused,) * len(request.creations))
    wanted = await broker.long_answers.each(request.creations, _acl_or_error)
    failure = await _store(broker, follower, added=[each for each in wanted if isinstance(each, Acl)])
    return CreateAclsResponse(
        throttle_time=NO_THROTTLE,
        results=tuple(_created(failure if isinstance(each, Acl) else each) for each in wanted),
    )


def _created(error: ApiError | None) -> AclCreationResult:
    if error is None:
        return AclCreationResult(error_code=ErrorCode.none, error_message=None)
    return AclCreationResult(error_code=error.code, error_message=str(error))


def _acl_or_error(creation: AclCreation) -> Acl | ApiError:
    try:
        return _acl(creation)
    except ApiError as error:
        return error


def _acl(creation: AclCreation) -> Acl:
    """What is to be stored. Raises InvalidRequest."""
    kind = _parse_number(AclResourceType, creation.resource_type, "resourceType")
    pattern_type = _parse_number(PatternType, creation.resource_pattern_type, "patternType", {PatternType.MATCH})
    operation = _parse_number(Operation, creation.operation, "operation")
    permission = _parse_number(Permission, creation.permission_type, "permissionType")
    if not creation.resource_name:
        raise InvalidRequest("Invalid empty resource name.")
    if kind is AclResourceType.CLUSTER and creation.resource_name != CLUSTER_NAME:
        raise InvalidRequest(f"The only valid name for the CLUSTER resource is {CLUSTER_NAME}")
    try:
        check_principal(creation.principal)
    except ValueError as error:
        raise InvalidRequest(f"Could not parse principal from `{creation.principal}`: {error}") from error
    if not creation.host:
        raise InvalidRequest("Invalid empty host.")
    pattern = ResourcePattern(kind, creation.resource_name, pattern_type)
    return Acl(pattern, Entry(creation.principal, creation.host, operation, permission))


def _parse_number(kind: type[E], number: int, words: str, only_in_filters: Collection[E] = ()) -> E:
    """What a number means in an ACL. Raises InvalidRequest for those that mean nothing, or are for filters."""
    found = next((each for each in kind if each == number), kind(0))
    if found <= 1 or found in only_in_filters:
        raise InvalidRequest(f"Invalid {words} {found.name}")
    return found


async def _store(
    broker: BrokerContext, follower: AclFollower, added: Iterable[Acl] = (), removed: Iterable[Acl] = ()
) -> ApiError | None:
    """Change the tree, and judge by it; gives what went wrong."""
    try:
        store = broker.membership.store
        await tree.add(store, added)
        await tree.remove(store, removed)
        await follower.catch_up()
    except StoreError as error:
        follower.reload()
        return RequestTimedOut(f"The metadata store did not take the change: {error}")
    return None


async def delete_acls(broker: BrokerContext, request: DeleteAclsRequest, caller: Caller) -> DeleteAclsResponse:
    """Remove the ACLs that match any of the filters."""
    follower = broker.acls
    if follower is None:
        refused = _filter_result(SecurityDisabled(DISABLED))
        return DeleteAclsResponse(throttle_time=NO_THROTTLE, filter_results=(refused,) * len(request.filters))
    known: list[Acl] = []
    unreadable: dict[ResourcePattern, MalformedNode] = {}
    failure: ApiError | None = None
    try:
        for pattern, entries in (await tree.load_all(broker.membership.store)).items():
            if isinstance(entries, MalformedNode):
                unreadable[pattern] = entries
            else:
                known += [Acl(pattern, entry) for entry in entries]
    except StoreError as error:
        failure = RequestTimedOut(f"The metadata store cannot be read: {error}")
    matches: list[list[Acl] | ApiError] = []
    for each in request.filters:
        wanted = _filter(each)
        if failure is not None:
            matches.append(failure)
        elif wanted.is_unknown:
            matches.append(InvalidRequest("The filter has an unknown resource type, pattern, operation or permission."))
        elif malformed := [error for pattern, error in unreadable.items() if wanted.includes(pattern)]:
            matches.append(UnknownServerError(f"Nothing was removed: {malformed[0]}"))
        else:
            found = await broker.long_answers.each(known, wanted.matches)
            matches.append([acl for acl, matches_filter in zip(known, found, strict=True) if matches_filter])
    gone = dict.fromkeys(acl for found in matches if not isinstance(found, ApiError) for acl in found)
    failure = await _store(broker, follower, removed=gone)
    return DeleteAclsResponse(
        throttle_time=NO_THROTTLE,
        filter_results=tuple(
            _filter_result(found if isinstance(found, ApiError) else failure or found) for found in matches
        ),
    )


def _filter_result(found: list[Acl] | ApiError) -> DeleteAclsFilterResult:
    if isinstance(found, ApiError):
        return DeleteAclsFilterResult(error_code=found.code, error_message=str(found), matching_acls=())
    return DeleteAclsFilterResult(
        error_code=ErrorCode.none,
        error_message=None,
        matching_acls=tuple(
            DeleteAclsMatchingAcl(
                error_code=ErrorCode.none,
                error_message=None,
                resource_type=i8(pattern.resource_type),
                resource_name=pattern.name,
                pattern_type=i8(pattern.pattern_type),
                principal=entry.principal,
                host=entry.host,
                operation=i8(entry.operation),
                permission_type=i8(entry.permission),
            )
            for pattern, entry in sorted(found)
        ),
    )
