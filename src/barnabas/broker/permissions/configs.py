"""Configuration: DescribeConfigs or AlterConfigs, on the topic, on the group, and for brokers on the cluster."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from barnabas.broker.permissions.needs import ERRORS, WORDS, Admitted, Denied
from barnabas.machines.security.acls import CLUSTER_NAME, Operation
from barnabas.machines.security.acls import AclResourceType as Resource
from barnabas.protocol.apis import ApiKey, ResourceType

if TYPE_CHECKING:
    from collections.abc import Collection

    from barnabas.broker.permissions.needs import Asked

JUDGED: Final = {
    ResourceType.TOPIC: Resource.TOPIC,
    ResourceType.GROUP: Resource.GROUP,
    ResourceType.BROKER: Resource.CLUSTER,
    ResourceType.BROKER_LOGGER: Resource.CLUSTER,
    ResourceType.CLIENT_METRICS: Resource.CLUSTER,
}
"""By what has a configuration, the resource on which the permission is needed."""


def describe(asked: Asked) -> Admitted | Denied:
    """DescribeConfigs, of each resource."""
    return _split(asked, Operation.DESCRIBE_CONFIGS, "results")


def alter(asked: Asked) -> Admitted | Denied:
    """AlterConfigs, of each resource. The older request takes no levels of loggers, whoever sends it."""
    unknown = {ResourceType.BROKER_LOGGER} if asked.key is ApiKey.ALTER_CONFIGS else ()
    return _split(asked, Operation.ALTER_CONFIGS, "responses", unknown)


def _split(
    asked: Asked, operation: Operation, response_name: str, unknown: Collection[ResourceType] = ()
) -> Admitted | Denied:
    """Serve resources that may be; those of unknown kinds are left to the handler, which refuses them."""

    def may(resource: Any) -> bool:
        kind = JUDGED.get(resource.resource_type)
        if kind is None or resource.resource_type in unknown:
            return True
        name = CLUSTER_NAME if kind is Resource.CLUSTER else resource.resource_name
        return asked.access.allows(operation, kind, name)

    answer = asked.split("resources", response_name, may, ERRORS[Resource.CLUSTER])
    if isinstance(answer, Denied):
        return Denied(_with_codes(answer.response, response_name))
    first = answer.complete
    if first is None:
        return answer
    return Admitted(answer.request, lambda response: _with_codes(first(response), response_name))


def _with_codes(response: Any, name: str) -> Any:
    """The errors of resources that were refused, each with the code of its kind."""

    def with_own_code(result: Any) -> Any:
        kind = JUDGED.get(result.resource_type)
        if result.error_code is not ERRORS[Resource.CLUSTER] or kind is None:
            return result
        return replace(result, error_code=ERRORS[kind], error_message=WORDS[ERRORS[kind]])

    return replace(response, **{name: tuple(map(with_own_code, getattr(response, name)))})
