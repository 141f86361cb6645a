"""Settings of groups: told, changed, refused with Kafka's words, and put over those of the broker."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from kio.schema.list_config_resources.v1.request import ListConfigResourcesRequest
from kio.static.primitive import i8

from barnabas.broker.coordinators.groups import group_settings, overridden
from barnabas.broker.handlers import configs
from barnabas.machines.controller.image import ConfigResource
from barnabas.model.config.keys.all_keys import GROUP_KEYS
from barnabas.model.errors import ErrorCode
from tests.support.config_requests import (
    APPEND,
    CALLER,
    DELETE,
    GROUP,
    SET,
    SUBTRACT,
    Writing,
    a_broker,
    alter,
    change,
    describe,
    entry,
    value_and_sources,
)
from tests.support.parts import running_parts

if TYPE_CHECKING:
    from pathlib import Path

SESSION, HEARTBEAT = "consumer.session.timeout.ms", "consumer.heartbeat.interval.ms"
OF_GROUP, OF_FILE, OF_DEFAULT = 8, 4, 5


class TestDescribed:
    async def test_a_group_that_nobody_has_heard_of(self) -> None:
        found = await describe(a_broker(), GROUP, "g")
        assert found.error_code is ErrorCode.none
        assert [config.name for config in found.configs] == sorted(GROUP_KEYS)
        assert not any(config.read_only or config.is_sensitive for config in found.configs)

    async def test_the_broker_stands_behind_it(self) -> None:
        broker = a_broker({"group.consumer.session.timeout.ms": "50000"})
        assert value_and_sources(await entry(broker, GROUP, "g", SESSION)) == (
            "50000",
            OF_FILE,
            [
                ("group.consumer.session.timeout.ms", "50000", OF_FILE),
                ("group.consumer.session.timeout.ms", "45000", OF_DEFAULT),
            ],
        )

    async def test_its_own_settings_come_first(self) -> None:
        broker = a_broker()
        assert await change(broker, (GROUP, "g", [(SESSION, SET, " 55000")])) == [""]
        assert value_and_sources(await entry(broker, GROUP, "g", SESSION)) == (
            "55000",
            OF_GROUP,
            [(SESSION, "55000", OF_GROUP), ("group.consumer.session.timeout.ms", "45000", OF_DEFAULT)],
        )
        assert value_and_sources(await entry(broker, GROUP, "h", SESSION))[:2] == ("45000", OF_DEFAULT)

    @pytest.mark.parametrize(
        ("key", "default"),
        [
            ("share.auto.offset.reset", "latest"),
            ("share.isolation.level", "read_uncommitted"),
            ("share.renew.acknowledge.enable", "true"),
        ],
    )
    async def test_keys_without_a_broker_key(self, key: str, default: str) -> None:
        assert value_and_sources(await entry(a_broker(), GROUP, "g", key)) == (
            default,
            OF_DEFAULT,
            [(key, default, OF_DEFAULT)],
        )

    async def test_no_name(self) -> None:
        found = await describe(a_broker(), GROUP, "")
        assert (found.error_code, found.error_message) == (ErrorCode.invalid_request, "Group name must not be empty")


class TestAltered:
    async def test_back_to_the_default(self) -> None:
        controller = Writing()
        broker = a_broker(controller=controller)
        assert await change(broker, (GROUP, "g", [(SESSION, SET, "55000"), (HEARTBEAT, SET, "6000")])) == [""]
        assert await change(broker, (GROUP, "g", [(SESSION, DELETE, None)])) == [""]
        assert broker.metadata.image.config(ConfigResource("groups", "g")) == {HEARTBEAT: "6000"}
        assert await alter(broker, (GROUP, "g", {SESSION: "46000"})) == [""]
        assert broker.metadata.image.config(ConfigResource("groups", "g")) == {SESSION: "46000"}
        assert set(controller.asked) == {ConfigResource("groups", "g")}

    async def test_only_checked(self) -> None:
        controller = Writing()
        assert await change(
            a_broker(controller=controller), (GROUP, "g", [(SESSION, SET, "55000")]), validate_only=True
        ) == [""]
        assert controller.asked == []

    @pytest.mark.parametrize(
        ("key", "operation", "value", "answer"),
        [
            (SESSION, SET, "soon", f"Invalid value soon for configuration {SESSION}: Not a number of type INT"),
            (SESSION, SET, "0", f"Invalid value 0 for configuration {SESSION}: Value must be at least 1"),
            (
                SESSION,
                SET,
                "44999",
                f"{SESSION} must be greater than or equal to group.consumer.min.session.timeout.ms",
            ),
            (SESSION, SET, "60001", f"{SESSION} must be less than or equal to group.consumer.max.session.timeout.ms"),
            (
                HEARTBEAT,
                SET,
                "4999",
                f"{HEARTBEAT} must be greater than or equal to group.consumer.min.heartbeat.inter",
            ),
            (
                "streams.num.standby.replicas",
                SET,
                "3",
                "streams.num.standby.replicas must be less than or equal to group.streams.max.standby.replicas",
            ),
            (
                "share.delivery.count.limit",
                SET,
                "11",
                "share.delivery.count.limit must be less than or equal to group.share.max.delivery.count.limit",
            ),
            (
                "share.isolation.level",
                SET,
                "serializable",
                "Invalid value serializable for configuration share.isolation.level: String must be one of: ",
            ),
            (SESSION, APPEND, "1", f"Can't APPEND to key {SESSION} because its type is not LIST."),
            ("no.such.key", SUBTRACT, "1", "Can't SUBTRACT to key no.such.key because its type is not LIST."),
            ("no.such.key", SET, "1", "Unknown group config name: no.such.key"),
        ],
    )
    async def test_answers_are_kafkas(self, key: str, operation: int, value: str, answer: str) -> None:
        (given,) = await change(a_broker(), (GROUP, "g", [(key, operation, value)]))
        assert given.startswith(f"invalid_config: {answer}")

    @pytest.mark.parametrize("value", ["earliest", "latest", "by_duration:PT1H", "by_duration:P2DT0.5S"])
    async def test_where_share_groups_begin(self, value: str) -> None:
        assert await change(a_broker(), (GROUP, "g", [("share.auto.offset.reset", SET, value)])) == [""]

    @pytest.mark.parametrize(
        "value", ["none", "", "by_duration", "by_duration:", "by_duration:PT", "by_duration:PT-1H"]
    )
    async def test_where_share_groups_do_not_begin(self, value: str) -> None:
        (answer,) = await change(a_broker(), (GROUP, "g", [("share.auto.offset.reset", SET, value)]))
        assert "The value must be either 'earliest', 'latest' or of the format" in answer

    async def test_a_session_is_longer_than_a_heartbeat(self) -> None:
        broker = a_broker({"group.consumer.max.heartbeat.interval.ms": "60000"})
        (answer,) = await change(broker, (GROUP, "g", [(HEARTBEAT, SET, "45000")]))
        assert answer == f"invalid_config: {SESSION} must be greater than {HEARTBEAT}"
        assert await change(broker, (GROUP, "g", [(HEARTBEAT, SET, "45000"), (SESSION, SET, "45001")])) == [""]

    async def test_no_name(self) -> None:
        (answer,) = await change(a_broker(), (GROUP, "", [(SESSION, SET, "55000")]))
        assert answer == "invalid_request: Default group resources are not allowed."


async def test_groups_with_settings_are_listed() -> None:
    broker = a_broker()
    for group, value in (("b", "55000"), ("a", "46000"), ("gone", "46000")):
        assert await change(broker, (GROUP, group, [(SESSION, SET, value)])) == [""]
    assert await change(broker, (GROUP, "gone", [(SESSION, DELETE, None)])) == [""]
    request = ListConfigResourcesRequest(resource_types=(i8(GROUP),))
    listed = (await configs.list_config_resources(broker, request, CALLER)).config_resources
    assert [(found.resource_type, found.resource_name) for found in listed] == [(GROUP, "a"), (GROUP, "b")]


class TestEffect:
    def test_settings_of_the_group_are_put_over_those_of_the_broker(self) -> None:
        settings = a_broker().settings
        common = group_settings(settings)
        own = overridden(common, {SESSION: "50000", "consumer.assignment.interval.ms": "2000"}, settings)
        assert own.consumer_session_timeout_ms == 50_000
        assert own.consumer_assignment_interval_ms == 2_000
        assert own.consumer_heartbeat_interval_ms == common.consumer_heartbeat_interval_ms
        assert own.max_size == common.max_size

    def test_bounds_that_were_moved_since(self) -> None:
        settings = a_broker({"group.consumer.max.session.timeout.ms": "48000"}).settings
        assert overridden(group_settings(settings), {SESSION: "60000"}, settings).consumer_session_timeout_ms == 48_000
        assert overridden(group_settings(settings), {SESSION: "1"}, settings).consumer_session_timeout_ms == 45_000

    def test_what_cannot_be_read_is_as_if_it_were_not_there(self) -> None:
        settings = a_broker().settings
        common = group_settings(settings)
        assert overridden(common, {SESSION: "soon", "of.a.newer.kafka": "1"}, settings) == common

    async def test_they_hold_from_the_image_on_that_has_them(self, tmp_path: Path) -> None:
        """Also where a subscriber that failed has the whole image applied again, and missed that they went."""
        async with running_parts(tmp_path) as broker:
            metadata, resource = broker.metadata, ConfigResource("groups", "g")
            table = broker.groups._make_machine().table
            without = metadata.image
            held = []
            for settings in ({SESSION: "50000"}, {SESSION: "51000"}, None, {SESSION: "52000"}):
                metadata.replace(metadata.image.with_configs({resource: settings}))
                held.append(table.settings_of("g").consumer_session_timeout_ms)
                assert table.settings_of("other") is table.settings
            assert held == [50_000, 51_000, table.settings.consumer_session_timeout_ms, 52_000]
            metadata._image = without
            metadata.apply_again()
            assert table.settings_of("g") == table.settings
