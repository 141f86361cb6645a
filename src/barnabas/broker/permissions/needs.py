"""What an API needs, as its line of the registry says it, and what comes of asking for it.

A need is nothing at all, an operation on the cluster, on the group or on the transactional id that the request names,
or a function of this package (`"topics:delete_topics"`) that judges each thing in a request on its own. Its answer is
the request as far as it may be served, and what has to be put into the response; or a response that refuses everything.
"""

from __future__ import annotations

from dataclasses import replace
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from barnabas.machines.security.acls import AclResourceType, Operation
from barnabas.model.errors import ErrorCode
from barnabas.protocol.wire.error_responses import error_response

if TYPE_CHECKING:
    from collections.abc import Callable

    from barnabas.broker.permissions.access import Access
    from barnabas.machines.controller.image import ClusterImage
    from barnabas.protocol.apis import ApiKey

ERRORS: Final = {
    AclResourceType.TOPIC: ErrorCode.topic_authorization_failed,
    AclResourceType.GROUP: ErrorCode.group_authorization_failed,
    AclResourceType.CLUSTER: ErrorCode.cluster_authorization_failed,
    AclResourceType.TRANSACTIONAL_ID: ErrorCode.transactional_id_authorization_failed,
}
WORDS: Final = {
    ErrorCode.topic_authorization_failed: "Topic authorization failed.",
    ErrorCode.group_authorization_failed: "Group authorization failed.",
    ErrorCode.cluster_authorization_failed: "Cluster authorization failed.",
    ErrorCode.transactional_id_authorization_failed: "Transactional Id authorization failed.",
}
"""Kafka's words for them."""


class Admitted(NamedTuple):
    """A request that may be served, all of it or what is left of it."""

    request: Any
    complete: Callable[[Any], Any] | None = None
    """Makes of the handler's response what the caller is answered."""


class Denied(NamedTuple):
    """A request of which nothing may be served."""

    response: Any


class Asked(NamedTuple):
    """A request, and who asks."""

    access: Access
    key: ApiKey
    version: int
    newest: int
    request: Any
    image: ClusterImage

    def errors(self, code: ErrorCode, request: Any = None) -> Any:
        """A response that answers everything in this request, or in a part of it, with one error."""
        request = self.request if request is None else request
        return error_response(self.key, self.version, self.newest, request, code, WORDS[code])

    def refuse(self, resource_type: AclResourceType) -> Denied:
        """Refuse all of the request, for lack of a permission on such a resource."""
        return Denied(self.errors(ERRORS[resource_type]))

    def split(self, name: str, response_name: str, may: Callable[[Any], bool], code: ErrorCode) -> Admitted | Denied:
        """Serve those elements of a field of the request that may be, and answer the others with an error.

        `name` is the request's field, `response_name` the field of the response that has an element for each.
        """
        elements = getattr(self.request, name)
        admitted = tuple(element for element in elements if may(element))
        if len(admitted) == len(elements):
            return Admitted(self.request)
        allowed = set(map(id, admitted))
        refused = tuple(element for element in elements if id(element) not in allowed)
        errors = self.errors(code, replace(self.request, **{name: refused}))
        if not admitted:
            return Denied(errors)

        def complete(response: Any) -> Any:
            told = getattr(response, response_name) or ()
            return replace(response, **{response_name: (*told, *getattr(errors, response_name))})

        return Admitted(replace(self.request, **{name: admitted}), complete)


class Need(NamedTuple):
    """What one API needs."""

    resource_type: AclResourceType | None = None
    """The cluster, or what the request names: its `group_id` or `transactional_id`."""
    operations: tuple[Operation, ...] = ()
    """Any one of these is enough."""
    function: str = ""
    """The function that decides instead, as "module:name" below `barnabas.broker.permissions`."""
    in_handler: bool = False
    """Whether the handler itself asks, because it is asked for most or has to know more."""

    @property
    def is_nothing(self) -> bool:
        """Whether anybody may ask for it."""
        return self == NOTHING

    def load(self) -> Callable[[Asked], Admitted | Denied] | None:
        """What decides about a request before its handler; None if nothing does."""
        if self.function:
            module, _, function = self.function.partition(":")
            loaded: Callable[[Asked], Admitted | Denied] = getattr(
                import_module(f"barnabas.broker.permissions.{module}"), function
            )
            return loaded
        if self.resource_type is AclResourceType.CLUSTER:
            return self._check_cluster
        if self.resource_type is AclResourceType.GROUP:
            return self._check_group
        if self.resource_type is AclResourceType.TRANSACTIONAL_ID:
            return self._check_transactional_id
        return None

    def _check_cluster(self, asked: Asked) -> Admitted | Denied:
        *first, last = self.operations
        if any(asked.access.allows_cluster(each, quiet=True) for each in first) or asked.access.allows_cluster(last):
            return Admitted(asked.request)
        return asked.refuse(AclResourceType.CLUSTER)

    def _check_group(self, asked: Asked) -> Admitted | Denied:
        if asked.access.allows_group(self.operations[0], asked.request.group_id):
            return Admitted(asked.request)
        return asked.refuse(AclResourceType.GROUP)

    def _check_transactional_id(self, asked: Asked) -> Admitted | Denied:
        kind = AclResourceType.TRANSACTIONAL_ID
        if asked.access.allows(self.operations[0], kind, asked.request.transactional_id):
            return Admitted(asked.request)
        return asked.refuse(kind)


NOTHING: Final = Need()
"""Anybody may ask for it."""
IN_HANDLER: Final = Need(in_handler=True)


def on_cluster(*operations: Operation) -> Need:
    """Any of these operations on the cluster."""
    return Need(AclResourceType.CLUSTER, operations)


def on_group(operation: Operation) -> Need:
    """An operation on the group that the request names."""
    return Need(AclResourceType.GROUP, (operation,))


def on_transactional_id(operation: Operation) -> Need:
    """An operation on the transactional id that the request names."""
    return Need(AclResourceType.TRANSACTIONAL_ID, (operation,))


def by(function: str) -> Need:
    """What this function of `barnabas.broker.permissions` finds that it needs."""
    return Need(function=function)
