"""DescribeConfigs, AlterConfigs, IncrementalAlterConfigs and ListConfigResources: configuration over the wire.

- DescribeConfigs v1–4: topics, this broker, all brokers (an empty name), this broker's loggers, and groups, whether
  they are there or not. Each value comes with its source; with `include_synonyms`, with every other place that it could
  have come from, strongest first.
  Secrets and unknown keys are shown without a value. Documentation is one sentence of our own. A resource that is named
  twice alike is described once.
- AlterConfigs v0–2: replaces everything that was set dynamically for a resource.
- IncrementalAlterConfigs v0–1: sets and deletes keys, and adds items to lists or takes them out. Loggers' levels too.
- ListConfigResources v0–1: what can be described. v0 knows client metrics only, of which there are none.

A change is checked with Kafka's rules and words, then sent to the controller, which writes it to the metadata tree.
Either all changes of a resource are made, or none. Not implemented: client metrics.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final, NamedTuple

from kio.schema.alter_configs.v2 import response as full
from kio.schema.describe_configs.v4.response import (
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
)
from kio.schema.incremental_alter_configs.v1 import response as incremental
from kio.schema.list_config_resources.v1.response import ConfigResource as ListedResource
from kio.schema.list_config_resources.v1.response import ListConfigResourcesResponse
from kio.static.primitive import i8

from barnabas.broker.serving import log_levels
from barnabas.broker.serving.config_entries import ENTRIES, Describer, unsupported
from barnabas.broker.serving.long_answers import portions
from barnabas.broker.serving.throttle import NO_THROTTLE
from barnabas.broker.settings import is_secret
from barnabas.machines.controller.image import ALL_BROKERS, ConfigResource
from barnabas.machines.controller.names import check_name
from barnabas.model.config.definition import Type
from barnabas.model.config.group import check_settings as check_group_settings
from barnabas.model.config.keys.all_keys import BROKER_KEYS, TOPIC_KEYS
from barnabas.model.errors import (
    ApiError,
    ErrorCode,
    InvalidConfig,
    InvalidRequest,
    UnknownTopicOrPartition,
    UnsupportedVersion,
)
from barnabas.protocol.apis import ResourceType

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from kio.schema.alter_configs.v2.request import AlterConfigsRequest
    from kio.schema.describe_configs.v4.request import DescribeConfigsRequest, DescribeConfigsResource
    from kio.schema.incremental_alter_configs.v1.request import IncrementalAlterConfigsRequest
    from kio.schema.list_config_resources.v1.request import ListConfigResourcesRequest

    from barnabas.broker.context import BrokerContext
    from barnabas.broker.serving.caller import Caller
    from barnabas.model.config.definition import Key

OPERATIONS: Final = ("SET", "DELETE", "APPEND", "SUBTRACT")
SET, DELETE, APPEND, SUBTRACT = range(4)


async def describe_configs(
    broker: BrokerContext, request: DescribeConfigsRequest, caller: Caller
) -> DescribeConfigsResponse:
    """Describe the configuration of each resource."""
    describer = Describer(broker, request.include_synonyms, request.include_documentation)
    results = await broker.long_answers.each(
        dict.fromkeys(request.resources), lambda resource: _describe(describer, resource), lambda _: ENTRIES
    )
    return DescribeConfigsResponse(throttle_time=NO_THROTTLE, results=tuple(results))


def _describe(describer: Describer, resource: DescribeConfigsResource) -> DescribeConfigsResult:
    code, message, entries = ErrorCode.none, None, tuple[DescribeConfigsResourceResult, ...]()
    wanted = resource.configuration_keys
    try:
        found = describer.entries(resource.resource_type, resource.resource_name)
        entries = tuple(entry for entry in found if not wanted or entry.name in wanted)
    except ApiError as error:
        code, message = error.code, str(error)
    return DescribeConfigsResult(
        error_code=code,
        error_message=message,
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
        configs=entries,
    )


class ConfigOperation(NamedTuple):
    """One change of one key."""

    name: str
    kind: int
    value: str | None


class Alteration(NamedTuple):
    """The changes of one resource."""

    kind: int
    name: str
    operations: tuple[ConfigOperation, ...]
    replaces: bool
    """Whether keys that are not named are removed."""


async def alter_configs(
    broker: BrokerContext, request: AlterConfigsRequest, caller: Caller
) -> full.AlterConfigsResponse:
    """Replace the dynamic settings of each resource."""
    alterations = [
        Alteration(
            resource.resource_type,
            resource.resource_name,
            tuple(ConfigOperation(config.name, SET, config.value) for config in resource.configs),
            replaces=True,
        )
        for resource in request.resources
    ]
    errors = await _alter(broker, alterations, request.validate_only, caller.principal)
    return full.AlterConfigsResponse(
        throttle_time=NO_THROTTLE,
        responses=tuple(
            full.AlterConfigsResourceResponse(
                error_code=ErrorCode.none if error is None else error.code,
                error_message=None if error is None else str(error),
                resource_type=resource.resource_type,
                resource_name=resource.resource_name,
            )
            for resource, error in zip(request.resources, errors, strict=True)
        ),
    )


async def incremental_alter_configs(
    broker: BrokerContext, request: IncrementalAlterConfigsRequest, caller: Caller
) -> incremental.IncrementalAlterConfigsResponse:
    """Change some settings of each resource."""
    alterations = [
        Alteration(
            resource.resource_type,
            resource.resource_name,
            tuple(ConfigOperation(config.name, config.config_operation, config.value) for config in resource.configs),
            replaces=False,
        )
        for resource in request.resources
    ]
    errors = await _alter(broker, alterations, request.validate_only, caller.principal)
    return incremental.IncrementalAlterConfigsResponse(
        throttle_time=NO_THROTTLE,
        responses=tuple(
            incremental.AlterConfigsResourceResponse(
                error_code=ErrorCode.none if error is None else error.code,
                error_message=None if error is None else str(error),
                resource_type=resource.resource_type,
                resource_name=resource.resource_name,
            )
            for resource, error in zip(request.resources, errors, strict=True)
        ),
    )


async def _alter(
    broker: BrokerContext, alterations: Sequence[Alteration], validate_only: bool, principal: str
) -> list[ApiError | None]:
    """Check and make every alteration, as somebody asked; gives what went wrong with each."""
    errors: list[ApiError | None] = []
    times = Counter((alteration.kind, alteration.name) for alteration in alterations)
    async with broker.settings.writing:
        planned: dict[ConfigResource, dict[str, str]] = {}
        places: dict[ConfigResource, int] = {}

        def plan(alteration: Alteration) -> None:
            try:
                if times[alteration.kind, alteration.name] > 1:
                    raise InvalidRequest("Each resource must appear at most once.")
                _check_operations(alteration)
                if alteration.kind == ResourceType.BROKER_LOGGER and not alteration.replaces:
                    _alter_loggers(broker, alteration, validate_only, principal)
                else:
                    resource, settings = _plan(broker, alteration)
                    planned[resource] = settings
                    places[resource] = len(errors)
                errors.append(None)
            except ApiError as error:
                errors.append(error)

        await broker.long_answers.each(alterations, plan, lambda alteration: 5 + 5 * len(alteration.operations))
        for resource in [each for each in planned if each.kind == "brokers"]:
            try:
                if broker.certificates is not None:
                    await broker.certificates.check(planned[resource], all_brokers=resource == ALL_BROKERS)
            except ApiError as error:
                errors[places[resource]] = error
                del planned[resource]
        if planned and not validate_only:
            for some in portions(list(planned.items())):
                for resource, failure in (await broker.controller.alter_configs(dict(some))).items():
                    errors[places[resource]] = failure
    return errors


def _check_operations(alteration: Alteration) -> None:
    names = [operation.name for operation in alteration.operations]
    if len(set(names)) != len(names):
        raise InvalidRequest("Error due to duplicate config keys")
    empty = [
        operation.name for operation in alteration.operations if operation.kind != DELETE and operation.value is None
    ]
    if empty:
        raise InvalidRequest(f"Null value not supported for : {', '.join(empty)}")
    for operation in alteration.operations:
        if not 0 <= operation.kind < len(OPERATIONS):
            raise InvalidRequest(f"Unknown operations type {operation.kind}")


def _plan(broker: BrokerContext, alteration: Alteration) -> tuple[ConfigResource, dict[str, str]]:
    """The resource and all its dynamic settings as they shall be; raises when they cannot."""
    match alteration.kind:
        case ResourceType.TOPIC:
            return _plan_topic(broker, alteration)
        case ResourceType.BROKER:
            return _plan_broker(broker, alteration)
        case ResourceType.GROUP:
            return _plan_group(broker, alteration)
        case _:
            raise unsupported(alteration.kind)


def _plan_topic(broker: BrokerContext, alteration: Alteration) -> tuple[ConfigResource, dict[str, str]]:
    topic = alteration.name
    if not topic:
        raise InvalidRequest("Default topic resources are not allowed.")
    check_name(topic)
    settings = _applied(alteration, broker.metadata.topic_config(topic), _topic_list)
    broker.settings.check_topic(settings)
    if broker.metadata.topic(topic) is None:
        raise UnknownTopicOrPartition(f"The topic '{topic}' does not exist.")
    return ConfigResource.topic(topic), settings


def _plan_group(broker: BrokerContext, alteration: Alteration) -> tuple[ConfigResource, dict[str, str]]:
    if not alteration.name:
        raise InvalidRequest("Default group resources are not allowed.")
    resource = ConfigResource("groups", alteration.name)
    settings = _applied(alteration, broker.metadata.image.config(resource), _no_list)
    check_group_settings(settings, broker.settings)
    return resource, settings


def _plan_broker(broker: BrokerContext, alteration: Alteration) -> tuple[ConfigResource, dict[str, str]]:
    if alteration.name:
        _check_node_id(alteration.name, broker.broker_id)
        resource, usable = ConfigResource.broker(broker.broker_id), broker.settings.dynamic
    else:
        resource, usable = ALL_BROKERS, broker.settings.dynamic_default
    checked = _applied(alteration, usable, _broker_list)
    broker.settings.check_broker(checked, all_brokers=resource == ALL_BROKERS)
    stored = _applied(alteration, broker.metadata.image.config(resource), _broker_list)
    for operation in alteration.operations:
        if operation.name in stored and is_secret(operation.name):
            stored[operation.name] = broker.settings.passwords.encode(stored[operation.name])
    return resource, stored


def _check_node_id(name: str, own_id: int) -> None:
    if not name.removeprefix("-").isdecimal():
        raise InvalidRequest(f"Node id must be an integer, but it is: {name}")
    if int(name) != own_id:
        raise InvalidRequest(f"Unexpected broker id, expected {own_id}, but received {name}")


def _applied(
    alteration: Alteration, before: Mapping[str, str], list_key: Callable[[ConfigOperation], Key]
) -> dict[str, str]:
    """The settings after the operations; `list_key` gives the key of a list, or refuses."""
    settings = {} if alteration.replaces else dict(before)
    for operation in alteration.operations:
        name, value = operation.name, operation.value or ""
        if operation.kind == SET:
            settings[name] = value
        elif operation.kind == DELETE:
            settings.pop(name, None)
        else:
            key = list_key(operation)
            present = _items(settings.get(name, key.write(key.default) or ""))
            if operation.kind == APPEND:
                present += [item for item in value.split(",") if item not in present]
            else:
                present = [item for item in present if item not in value.split(",")]
            settings[name] = ",".join(present)
    return settings


def _items(text: str) -> list[str]:
    return [item for item in text.split(",") if item]


def _topic_list(operation: ConfigOperation) -> Key:
    key = TOPIC_KEYS.get(operation.name)
    return _no_list(operation) if key is None or key.type is not Type.LIST else key


def _no_list(operation: ConfigOperation) -> Key:
    raise InvalidConfig(f"Can't {OPERATIONS[operation.kind]} to key {operation.name} because its type is not LIST.")


def _broker_list(operation: ConfigOperation) -> Key:
    key = BROKER_KEYS.get(operation.name)
    if key is None:
        raise InvalidConfig(f"Unknown config name: {operation.name}")
    if key.type is not Type.LIST:
        manner = OPERATIONS[operation.kind].lower()
        raise InvalidConfig(f"Config value {manner} is not allowed for config key: {operation.name}")
    return key


def _alter_loggers(broker: BrokerContext, alteration: Alteration, validate_only: bool, principal: str) -> None:
    """Set log levels, which belong to this process and are not written to the metadata tree."""
    _check_node_id(alteration.name, broker.broker_id)
    levels = {
        operation.name: None if operation.kind == DELETE else operation.value for operation in alteration.operations
    }
    for operation in alteration.operations:
        if operation.kind in (APPEND, SUBTRACT):
            manner = OPERATIONS[operation.kind]
            raise InvalidRequest(f"{manner} operation is not allowed for the BROKER_LOGGER resource")
        log_levels.check_level(operation.name, levels[operation.name])
    if not validate_only:
        log_levels.set_levels(levels, principal)


async def list_config_resources(
    broker: BrokerContext, request: ListConfigResourcesRequest, caller: Caller
) -> ListConfigResourcesResponse:
    """List the resources that have a configuration, of all or of some types."""
    kinds = set(request.resource_types or ResourceType)
    if not kinds <= set(ResourceType):
        raise UnsupportedVersion(
            f"Valid resource types are {', '.join(map(str, ResourceType))}; the request has {kinds}"
        )
    image = broker.metadata.image
    brokers = [str(broker_id) for broker_id in sorted(image.brokers)]
    names = {
        ResourceType.TOPIC: sorted(image.topics),
        ResourceType.BROKER: brokers,
        ResourceType.BROKER_LOGGER: brokers,
        ResourceType.GROUP: sorted(
            resource.name for resource, settings in image.configs.items() if resource.kind == "groups" and settings
        ),
    }
    return ListConfigResourcesResponse(
        throttle_time=NO_THROTTLE,
        error_code=ErrorCode.none,
        config_resources=tuple(
            await broker.long_answers.each(
                ((kind, name) for kind, known in names.items() if kind in kinds for name in known),
                lambda each: ListedResource(resource_name=each[1], resource_type=i8(each[0])),
            )
        ),
    )
