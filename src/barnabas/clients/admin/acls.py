"""Access control lists of a cluster: rules that allow or deny principals to do something to resources."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from barnabas.clients.errors import RequestRefused
from barnabas.machines.security.acls import (
    Acl,
    AclFilter,
    AclResourceType,
    Entry,
    Operation,
    PatternType,
    Permission,
    ResourcePattern,
)
from barnabas.model.errors import ErrorCode
from barnabas.model.permissions import on_cluster

if TYPE_CHECKING:
    from collections.abc import Sequence

    from barnabas.clients.wire.connection import WireClient
    from barnabas.model.permissions import Action


class Acls:
    """The ACLs of a cluster."""

    def __init__(self, wire: WireClient) -> None:
        self._wire = wire

    def matching(self, wanted: AclFilter) -> list[Acl]:
        """All ACLs that a filter means, sorted; raises RequestRefused."""
        from kio.schema.describe_acls.v3.request import DescribeAclsRequest
        from kio.static.primitive import i8

        answer = self._wire.ask(
            DescribeAclsRequest(
                resource_type_filter=i8(wanted.resource_type),
                resource_name_filter=wanted.name,
                pattern_type_filter=i8(wanted.pattern_type),
                principal_filter=wanted.principal,
                host_filter=wanted.host,
                operation=i8(wanted.operation),
                permission_type=i8(wanted.permission),
            ),
            at_least=1,
        )
        if answer.error_code != ErrorCode.none:
            raise _refusal(answer, on_cluster("list ACLs", "Describe"))
        return sorted(Acl(_pattern(resource), _entry(each)) for resource in answer.resources for each in resource.acls)

    def create(self, acls: Sequence[Acl]) -> None:
        """Store ACLs; raises RequestRefused for the first that is not."""
        from kio.schema.create_acls.v3.request import AclCreation, CreateAclsRequest
        from kio.static.primitive import i8

        answer = self._wire.ask(
            CreateAclsRequest(
                creations=tuple(
                    AclCreation(
                        resource_type=i8(pattern.resource_type),
                        resource_name=pattern.name,
                        resource_pattern_type=i8(pattern.pattern_type),
                        principal=entry.principal,
                        host=entry.host,
                        operation=i8(entry.operation),
                        permission_type=i8(entry.permission),
                    )
                    for pattern, entry in acls
                )
            ),
            at_least=1,
        )
        for result in answer.results:
            if result.error_code != ErrorCode.none:
                raise _refusal(result, on_cluster("add ACLs", "Alter"))

    def delete(self, filters: Sequence[AclFilter]) -> list[Acl]:
        """Remove all ACLs that the filters mean, and give them back; raises RequestRefused."""
        from kio.schema.delete_acls.v3.request import DeleteAclsFilter, DeleteAclsRequest
        from kio.static.primitive import i8

        answer = self._wire.ask(
            DeleteAclsRequest(
                filters=tuple(
                    DeleteAclsFilter(
                        resource_type_filter=i8(each.resource_type),
                        resource_name_filter=each.name,
                        pattern_type_filter=i8(each.pattern_type),
                        principal_filter=each.principal,
                        host_filter=each.host,
                        operation=i8(each.operation),
                        permission_type=i8(each.permission),
                    )
                    for each in filters
                )
            ),
            at_least=1,
        )
        gone: set[Acl] = set()
        for result in answer.filter_results:
            if result.error_code != ErrorCode.none:
                raise _refusal(result, on_cluster("remove ACLs", "Alter"))
            gone.update(Acl(_pattern(each), _entry(each)) for each in result.matching_acls)
        return sorted(gone)


def _refusal(result: Any, action: Action) -> RequestRefused:
    return RequestRefused(result.error_code, result.error_message or result.error_code.name.upper(), action)


def _pattern(told: Any) -> ResourcePattern:
    kind, pattern_type = AclResourceType(told.resource_type), PatternType(told.pattern_type)
    return ResourcePattern(kind, told.resource_name, pattern_type)


def _entry(told: Any) -> Entry:
    return Entry(told.principal, told.host, Operation(told.operation), Permission(told.permission_type))
