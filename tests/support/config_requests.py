"""Requests about configuration, put to the handlers of a broker that only tells and writes settings."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING

from kio.schema.alter_configs.v2 import request as full
from kio.schema.describe_configs.v4.request import DescribeConfigsRequest, DescribeConfigsResource
from kio.schema.incremental_alter_configs.v1 import request as incremental
from kio.static.primitive import i8

from barnabas.broker.handlers import configs
from barnabas.broker.serving.caller import Caller
from barnabas.model.errors import ApiError, ErrorCode
from barnabas.protocol.apis import ApiKey
from barnabas.protocol.wire import codec
from tests.support.images import ClusterOf, telling_broker

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kio.schema.describe_configs.v4.response import DescribeConfigsResourceResult, DescribeConfigsResult

    from barnabas.broker.context import BrokerContext
    from barnabas.machines.controller.image import ConfigResource

CALLER = Caller(listener="PLAINTEXT", address=("127.0.0.1", 1), client_id="test")
TOPIC, BROKER, LOGGER, METRICS, GROUP = 2, 4, 8, 16, 32
SET, DELETE, APPEND, SUBTRACT = range(4)

Op = tuple[str, int, str | None]


class Writing:
    """A controller that writes settings to the image, a little later."""

    def __init__(self) -> None:
        self.broker: BrokerContext
        self.asked: list[ConfigResource] = []
        self.refusal: ApiError | None = None

    async def alter_configs(
        self, settings: Mapping[ConfigResource, Mapping[str, str]]
    ) -> dict[ConfigResource, ApiError | None]:
        await asyncio.sleep(0)
        self.asked += settings
        if self.refusal is None:
            image = self.broker.metadata.image
            self.broker.metadata.replace(replace(image, configs={**image.configs, **settings}))
        return dict.fromkeys(settings, self.refusal)


def a_broker(properties: Mapping[str, str] | None = None, controller: Writing | None = None) -> BrokerContext:
    """A broker with id 1 and the topics a and b."""
    controller = controller or Writing()
    broker = telling_broker(ClusterOf(leaders={"a": (1,), "b": (1,)}), properties, controller=controller)
    controller.broker = broker
    return broker


async def describe(
    broker: BrokerContext, kind: int, name: str, *keys: str, synonyms: bool = True, documentation: bool = False
) -> DescribeConfigsResult:
    """What is told of a resource; it can be encoded."""
    resource = DescribeConfigsResource(resource_type=i8(kind), resource_name=name, configuration_keys=keys or None)
    request = DescribeConfigsRequest(
        resources=(resource,), include_synonyms=synonyms, include_documentation=documentation
    )
    response = await configs.describe_configs(broker, request, CALLER)
    encoded = codec.encode(ApiKey.DESCRIBE_CONFIGS, 4, 1, response)
    assert encoded is not None
    (result,) = response.results
    assert (result.resource_type, result.resource_name) == (kind, name)
    return result


async def entry(broker: BrokerContext, kind: int, name: str, key: str) -> DescribeConfigsResourceResult:
    """What is told of one key."""
    (found,) = (await describe(broker, kind, name, key)).configs
    return found


def value_and_sources(
    found: DescribeConfigsResourceResult,
) -> tuple[str | None, int, list[tuple[str, str | None, int]]]:
    """Value, source and synonyms."""
    return found.value, found.config_source, [(part.name, part.value, part.source) for part in found.synonyms]


async def alter(
    broker: BrokerContext, *resources: tuple[int, str, Mapping[str, str | None]], validate_only: bool = False
) -> list[str]:
    """The answers as text: empty when all is well."""
    request = full.AlterConfigsRequest(
        resources=tuple(
            full.AlterConfigsResource(
                resource_type=i8(kind),
                resource_name=name,
                configs=tuple(full.AlterableConfig(name=key, value=value) for key, value in settings.items()),
            )
            for kind, name, settings in resources
        ),
        validate_only=validate_only,
    )
    response = await configs.alter_configs(broker, request, CALLER)
    return [answer_text(result.error_code, result.error_message) for result in response.responses]


async def change(
    broker: BrokerContext, *resources: tuple[int, str, Sequence[Op]], validate_only: bool = False
) -> list[str]:
    """The answers as text: empty when all is well."""
    response = await configs.incremental_alter_configs(
        broker, incremental_request(*resources, validate_only=validate_only), CALLER
    )
    return [answer_text(result.error_code, result.error_message) for result in response.responses]


def incremental_request(
    *resources: tuple[int, str, Sequence[Op]], validate_only: bool = False
) -> incremental.IncrementalAlterConfigsRequest:
    """The request that makes these operations."""
    return incremental.IncrementalAlterConfigsRequest(
        resources=tuple(
            incremental.AlterConfigsResource(
                resource_type=i8(kind),
                resource_name=name,
                configs=tuple(
                    incremental.AlterableConfig(name=key, config_operation=i8(operation), value=value)
                    for key, operation, value in operations
                ),
            )
            for kind, name, operations in resources
        ),
        validate_only=validate_only,
    )


def answer_text(code: ErrorCode, message: str | None) -> str:
    """An answer in one line."""
    return "" if code is ErrorCode.none else f"{code.name}: {message}"
