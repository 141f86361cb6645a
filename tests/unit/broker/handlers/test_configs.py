"""AlterConfigs, IncrementalAlterConfigs, ListConfigResources; Kafka 4.3.0's answers stand here word for word."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from kio.schema.list_config_resources.v1.request import ListConfigResourcesRequest
from kio.static.primitive import i8

from barnabas.broker.handlers import configs
from barnabas.broker.serving.registry import BY_KEY
from barnabas.machines.controller.image import ALL_BROKERS
from barnabas.model.errors import UnknownTopicOrPartition, UnsupportedVersion
from barnabas.protocol.apis import ApiKey
from barnabas.protocol.wire import codec
from tests.support.config_requests import (
    APPEND,
    BROKER,
    CALLER,
    DELETE,
    GROUP,
    LOGGER,
    METRICS,
    SET,
    SUBTRACT,
    TOPIC,
    Op,
    Writing,
    a_broker,
    alter,
    change,
    incremental_request,
)

if TYPE_CHECKING:
    from collections.abc import Sequence


class TestIncremental:
    async def test_keys_are_set_and_deleted(self) -> None:
        broker = a_broker()
        assert await change(broker, (TOPIC, "a", [("retention.ms", SET, "5"), ("segment.ms", SET, "6")])) == [""]
        assert await change(broker, (TOPIC, "a", [("retention.ms", DELETE, None), ("flush.ms", SET, "7")])) == [""]
        assert broker.metadata.topic_config("a") == {"segment.ms": "6", "flush.ms": "7"}
        assert broker.metadata.topic_config("b") == {}

    @pytest.mark.parametrize(
        ("before", "operation", "after"),
        [
            (None, ("cleanup.policy", APPEND, "compact"), "delete,compact"),
            (None, ("cleanup.policy", APPEND, "delete"), "delete"),
            ("compact", ("cleanup.policy", APPEND, "compact,delete"), "compact,delete"),
            (None, ("cleanup.policy", SUBTRACT, "delete"), ""),
            ("compact,delete", ("cleanup.policy", SUBTRACT, "delete"), "compact"),
            ("", ("cleanup.policy", APPEND, "compact"), "compact"),
            (None, ("cleanup.policy", SUBTRACT, "compact"), "delete"),
        ],
    )
    async def test_items_are_added_and_taken_out(self, before: str | None, operation: Op, after: str) -> None:
        broker = a_broker()
        if before is not None:
            await change(broker, (TOPIC, "a", [("cleanup.policy", SET, before)]))
        assert await change(broker, (TOPIC, "a", [operation])) == [""]
        assert broker.metadata.topic_config("a") == {"cleanup.policy": after}

    async def test_a_brokers_list_too(self) -> None:
        broker = a_broker()
        assert await change(broker, (BROKER, "1", [("log.cleanup.policy", APPEND, "compact")])) == [""]
        assert broker.settings.items("log.cleanup.policy") == ("delete", "compact")

    async def test_validating_writes_nothing(self) -> None:
        controller = Writing()
        broker = a_broker(controller=controller)
        assert await change(broker, (TOPIC, "a", [("retention.ms", SET, "5")]), validate_only=True) == [""]
        assert await change(broker, (TOPIC, "a", [("retention.ms", SET, "x")]), validate_only=True) != [""]
        assert controller.asked == []

    async def test_each_resource_stands_alone(self) -> None:
        broker = a_broker()
        answers = await change(
            broker,
            (TOPIC, "a", [("retention.ms", SET, "5"), ("foo", SET, "5")]),
            (TOPIC, "b", [("retention.ms", SET, "5")]),
            (BROKER, "", [("message.max.bytes", SET, "5")]),
        )
        assert answers == ["invalid_config: Unknown topic config name: foo", "", ""]
        assert broker.metadata.topic_config("a") == {}
        assert broker.metadata.topic_config("b") == {"retention.ms": "5"}
        assert broker.settings.number("message.max.bytes") == 5

    @pytest.mark.parametrize(
        ("kind", "name", "operations", "answer"),
        [
            (TOPIC, "a", [("foo", DELETE, None)], ""),
            (
                TOPIC,
                "a",
                [("foo", APPEND, "1")],
                "invalid_config: Can't APPEND to key foo because its type is not LIST.",
            ),
            (
                TOPIC,
                "a",
                [("retention.ms", SUBTRACT, "1")],
                "invalid_config: Can't SUBTRACT to key retention.ms because its type is not LIST.",
            ),
            (
                TOPIC,
                "a",
                [("retention.ms", SET, "-2")],
                "invalid_config: Invalid value -2 for configuration retention.ms: Value must be at least -1",
            ),
            (
                TOPIC,
                "no-such",
                [("retention.ms", SET, "x")],
                "invalid_config: Invalid value x for configuration retention.ms: Not a number of type LONG",
            ),
            (
                TOPIC,
                "no-such",
                [("retention.ms", SET, "1")],
                "unknown_topic_or_partition: The topic 'no-such' does not exist.",
            ),
            (
                TOPIC,
                "bad name!",
                [("retention.ms", SET, "1")],
                "invalid_topic_exception: Topic name is invalid: 'bad name!' contains one or more characters "
                "other than ASCII alphanumerics, '.', '_' and '-'",
            ),
            (TOPIC, "", [("retention.ms", SET, "1")], "invalid_request: Default topic resources are not allowed."),
            (
                TOPIC,
                "a",
                [("retention.ms", SET, "1"), ("retention.ms", DELETE, None)],
                "invalid_request: Error due to duplicate config keys",
            ),
            (TOPIC, "a", [("retention.ms", SET, None)], "invalid_request: Null value not supported for : retention.ms"),
            (TOPIC, "a", [("retention.ms", 7, "1")], "invalid_request: Unknown operations type 7"),
            (BROKER, "1", [("num.partitions", DELETE, None)], ""),
            (BROKER, "", [("foo", SET, "x")], ""),
            (BROKER, "1", [("foo", APPEND, "x")], "invalid_config: Unknown config name: foo"),
            (
                BROKER,
                "1",
                [("num.io.threads", APPEND, "x")],
                "invalid_config: Config value append is not allowed for config key: num.io.threads",
            ),
            (
                BROKER,
                "1",
                [("num.io.threads", SET, "9"), ("num.partitions", SET, "3")],
                "invalid_request: Cannot update these configs dynamically: [num.partitions]",
            ),
            (
                BROKER,
                "2",
                [("num.io.threads", SET, "9")],
                "invalid_request: Unexpected broker id, expected 1, but received 2",
            ),
            (BROKER, "x", [("num.io.threads", SET, "9")], "invalid_request: Node id must be an integer, but it is: x"),
            (
                METRICS,
                "m",
                [("interval.ms", SET, "9")],
                "invalid_request: Client metrics have no configuration in Barnabas.",
            ),
            (GROUP, "g", [("x", SET, "9")], "invalid_config: Unknown group config name: x"),
            (99, "x", [], "invalid_request: Unknown resource type 99"),
        ],
    )
    async def test_answers_are_kafkas(self, kind: int, name: str, operations: Sequence[Op], answer: str) -> None:
        assert await change(a_broker(), (kind, name, operations)) == [answer]

    async def test_a_resource_that_is_named_twice(self) -> None:
        broker = a_broker()
        twice = (TOPIC, "a", [("retention.ms", SET, "5")])
        answers = await change(broker, twice, (TOPIC, "b", [("retention.ms", SET, "5")]), twice)
        assert answers == ["invalid_request: Each resource must appear at most once.", "", answers[0]]
        assert broker.metadata.topic_config("a") == {}

    async def test_the_controllers_refusal_is_told(self) -> None:
        controller = Writing()
        broker = a_broker(controller=controller)
        controller.refusal = UnknownTopicOrPartition("gone")
        assert await change(broker, (TOPIC, "a", [("retention.ms", SET, "5")])) == ["unknown_topic_or_partition: gone"]

    async def test_changes_at_the_same_time_do_not_lose_each_other(self) -> None:
        broker = a_broker()

        async def both() -> None:
            await asyncio.gather(
                *(
                    configs.incremental_alter_configs(
                        broker, incremental_request((TOPIC, "a", [(key, SET, "5")])), CALLER
                    )
                    for key in ("retention.ms", "segment.ms", "flush.ms")
                )
            )

        await both()
        assert broker.metadata.topic_config("a") == {"retention.ms": "5", "segment.ms": "5", "flush.ms": "5"}

    async def test_a_brokers_settings_that_mean_nothing_here_stay_in_the_tree(self) -> None:
        broker = a_broker()
        image = broker.metadata.image
        broker.metadata.replace(replace(image, configs={ALL_BROKERS: {"num.partitions": "7"}}))
        assert await change(broker, (BROKER, "", [("message.max.bytes", SET, "5")])) == [""]
        assert broker.metadata.default_broker_config() == {"num.partitions": "7", "message.max.bytes": "5"}


class TestAlter:
    async def test_everything_is_replaced(self) -> None:
        broker = a_broker()
        assert await alter(broker, (TOPIC, "a", {"retention.ms": "5", "segment.ms": "6"})) == [""]
        assert await alter(broker, (TOPIC, "a", {"retention.ms": "7"})) == [""]
        assert broker.metadata.topic_config("a") == {"retention.ms": "7"}
        assert await alter(broker, (BROKER, "", {"message.max.bytes": "5"}), (TOPIC, "a", {})) == ["", ""]
        assert broker.metadata.topic_config("a") == {}
        assert broker.metadata.default_broker_config() == {"message.max.bytes": "5"}

    async def test_validating_writes_nothing(self) -> None:
        broker = a_broker()
        assert await alter(broker, (TOPIC, "a", {"retention.ms": "5"}), validate_only=True) == [""]
        assert broker.metadata.topic_config("a") == {}

    @pytest.mark.parametrize(
        ("kind", "name", "settings", "answer"),
        [
            (
                TOPIC,
                "a",
                {"retention.ms": "x"},
                "invalid_config: Invalid value x for configuration retention.ms: Not a number of type LONG",
            ),
            (TOPIC, "a", {"foo": "x"}, "invalid_config: Unknown topic config name: foo"),
            (TOPIC, "no-such", {}, "unknown_topic_or_partition: The topic 'no-such' does not exist."),
            (TOPIC, "a", {"retention.ms": None}, "invalid_request: Null value not supported for : retention.ms"),
            (
                BROKER,
                "1",
                {"num.partitions": "3"},
                "invalid_request: Cannot update these configs dynamically: [num.partitions]",
            ),
        ],
    )
    async def test_answers_are_kafkas(self, kind: int, name: str, settings: dict[str, str | None], answer: str) -> None:
        assert await alter(a_broker(), (kind, name, settings)) == [answer]


class TestList:
    async def _listed(self, *kinds: int) -> list[tuple[int, str]]:
        request = ListConfigResourcesRequest(resource_types=tuple(i8(kind) for kind in kinds))
        response = await configs.list_config_resources(a_broker(), request, CALLER)
        return [(found.resource_type, found.resource_name) for found in response.config_resources]

    async def test_everything(self) -> None:
        assert await self._listed() == [(TOPIC, "a"), (TOPIC, "b"), (BROKER, "1"), (LOGGER, "1")]

    async def test_some_kinds(self) -> None:
        assert await self._listed(BROKER, GROUP) == [(BROKER, "1")]
        assert await self._listed(METRICS) == []

    async def test_the_oldest_version_knows_client_metrics_only(self) -> None:
        request = codec.decode(ApiKey.LIST_CONFIG_RESOURCES, 0, 1, memoryview(b"\x00"), 0)
        assert (await configs.list_config_resources(a_broker(), request, CALLER)).config_resources == ()

    async def test_kinds_that_nobody_knows(self) -> None:
        with pytest.raises(UnsupportedVersion):
            await self._listed(99)


def test_the_versions_are_those_of_the_registry() -> None:
    documented = {
        ApiKey.DESCRIBE_CONFIGS: (1, 4),
        ApiKey.ALTER_CONFIGS: (0, 2),
        ApiKey.INCREMENTAL_ALTER_CONFIGS: (0, 1),
        ApiKey.LIST_CONFIG_RESOURCES: (0, 1),
    }
    for key, versions in documented.items():
        api = BY_KEY[key.value]
        assert (api.oldest, api.newest) == versions
        assert callable(api.load())
