"""Every config key, as DescribeConfigs tells it: value, type, source, synonyms, and what may be altered."""

from __future__ import annotations

from functools import partial
from typing import Any, Final

import pytest

from tests.compat.same.scene import (
    ALTER_CONFIGS,
    DESCRIBE_CONFIGS,
    INCREMENTAL_ALTER_CONFIGS,
    LIST_CONFIG_RESOURCES,
    METADATA,
    Scene,
)
from tests.support.group_wire import CONSUMER_GROUP_HEARTBEAT, beating
from tests.support.groups import QUICK
from tests.support.waiting import wait_until
from tests.support.wire import plain

TOPIC, BROKER, GROUP = 2, 4, 32
SET, DELETE, APPEND = range(3)

STATIC: Final = 4
"""The source of what server.properties says: there the two brokers were told different things."""
OTHERWISE: Final = {
    "min.insync.replicas",  # set dynamically when a new Kafka is first started
    "listener.security.protocol.map",  # listeners of Barnabas are what they were at its start
    "config.providers",  # likewise: placeholders are replaced when the file is read
    "sasl.kerberos.service.name",  # likewise: a listener offers what it offered at its start
    "sasl.kerberos.principal.to.local.rules",
}

SINCE_4_4: Final = {
    "errors.deadletterqueue.copy.record.enable",
    "errors.deadletterqueue.group.enable",
    "errors.deadletterqueue.topic.name",
}
"""Keys of topics and groups that the Kafka beside us does not have yet."""


def described(scene: Scene, kind: int, name: str) -> dict[str, dict[str, Any]]:
    resource = {"resource_type": kind, "resource_name": name, "configuration_keys": None}
    body = {"resources": [resource], "include_synonyms": True, "include_documentation": False}
    [result] = plain(scene.connection.ask(DESCRIBE_CONFIGS, 4, body))["results"]
    assert result["error_code"] == 0
    return {entry.pop("name"): entry for entry in result["configs"] if entry["name"] not in SINCE_4_4}


def broker_id(scene: Scene) -> str:
    return str(scene.connection.ask(METADATA, 12, {"topics": []}).brokers[0].node_id)


def test_a_topics_configs_are_the_same(scenes: tuple[Scene, Scene]) -> None:
    configs = {"retention.ms": "1000000", "cleanup.policy": "compact,delete", "compression.type": "lz4"}
    ours, theirs = (described(scene, TOPIC, scene.topic("configured", 1, configs)["name"]) for scene in scenes)
    for key in OTHERWISE & ours.keys():
        del ours[key], theirs[key]
    assert ours == theirs


@pytest.mark.parametrize("field", ["value", "config_type", "read_only", "is_sensitive", "config_source", "synonyms"])
def test_a_brokers_configs_are_the_same(scenes: tuple[Scene, Scene], field: str) -> None:
    """Of the keys that Barnabas tells: it leaves out those that mean nothing to it."""
    ours, theirs = (described(scene, BROKER, broker_id(scene)) for scene in scenes)
    shared = ours.keys() & theirs.keys() - OTHERWISE
    shared -= {key for key in shared if STATIC in (ours[key]["config_source"], theirs[key]["config_source"])}
    assert len(shared) > 50
    different = {
        key: (ours[key][field], theirs[key][field]) for key in shared if ours[key][field] != theirs[key][field]
    }
    assert not different


OF_A_LISTENER: Final = {
    "ssl.keystore.location": "/no/such/keys.pem",
    "ssl.keystore.type": "PEM",
    "ssl.keystore.password": "hunter2",
    "ssl.key.password": "hunter2",
    "ssl.truststore.location": "/no/such/ca.pem",
    "ssl.truststore.type": "PEM",
    "ssl.client.auth": "requested",
    "ssl.protocol": "TLSv1.2",
    "ssl.enabled.protocols": "TLSv1.2, TLSv1.3",
    "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-512",
    "plain.sasl.jaas.config": 'org.apache.kafka.common.security.plain.PlainLoginModule required user_a="hunter2";',
    "no.mechanism.sasl.jaas.config": "hunter2",
    "max.connections": "7",
    "num.partitions": "7",
    "no.such.key": "hunter2",
}


@pytest.mark.parametrize("key", OF_A_LISTENER)
def test_a_setting_of_one_listener_is_told_in_the_same_way(scenes: tuple[Scene, Scene], key: str) -> None:
    """Whether it is a secret is what its key is, without the listener's name; of one that nobody knows it is."""
    name, told = f"listener.name.plaintext.{key}", []
    for scene in scenes:
        assert change_broker(scene, name, SET, OF_A_LISTENER[key]) == 0
        wait_until(partial(is_described, scene, name), f"{name} is told")
        told.append(described(scene, BROKER, broker_id(scene))[name])
        assert change_broker(scene, name, DELETE, None) == 0
    assert told[0] == told[1]


def is_described(scene: Scene, key: str) -> bool:
    return key in described(scene, BROKER, broker_id(scene))


def change_broker(scene: Scene, key: str, operation: int, value: str | None) -> int:
    """The error code of a change of the broker's own settings."""
    configs = [{"name": key, "config_operation": operation, "value": value}]
    resource = {"resource_type": BROKER, "resource_name": broker_id(scene), "configs": configs}
    [answer] = scene.connection.ask(
        INCREMENTAL_ALTER_CONFIGS, 1, {"resources": [resource], "validate_only": False}
    ).responses
    return int(answer.error_code)


SESSION, HEARTBEAT = "consumer.session.timeout.ms", "consumer.heartbeat.interval.ms"
USUAL_SESSION: Final = QUICK["group.consumer.session.timeout.ms"]


def changed(scene: Scene, group: str, *operations: tuple[str, int, str | None]) -> tuple[int, str | None]:
    """The answer to changes of a group's settings: code and words."""
    configs = [{"name": key, "config_operation": kind, "value": value} for key, kind, value in operations]
    resource = {"resource_type": GROUP, "resource_name": group, "configs": configs}
    body = {"resources": [resource], "validate_only": False}
    [answer] = scene.connection.ask(INCREMENTAL_ALTER_CONFIGS, 1, body).responses
    return answer.error_code, answer.error_message


def wait_for(scene: Scene, group: str, key: str, value: str) -> None:
    """Kafka's controller answers before its brokers know."""
    wait_until(lambda: described(scene, GROUP, group)[key]["value"] == value, f"{key}={value} for {group}")


def listed_groups(scene: Scene) -> set[str]:
    found = scene.connection.ask(LIST_CONFIG_RESOURCES, 1, {"resource_types": [GROUP]}).config_resources
    return {one.resource_name.replace(scene.tag, "") for one in found if scene.tag in one.resource_name}


def test_a_groups_configs_are_the_same(scenes: tuple[Scene, Scene]) -> None:
    """Those of a group that is not there, those that were set, and those that were taken back."""
    for scene in scenes:
        group = f"configured-{scene.tag}"
        assert changed(scene, group, (SESSION, SET, "5000"), ("share.auto.offset.reset", SET, "earliest"))[0] == 0
        wait_for(scene, group, SESSION, "5000")
    ours, theirs = (described(scene, GROUP, f"configured-{scene.tag}") for scene in scenes)
    assert comparable(ours) == comparable(theirs)
    ours, theirs = (described(scene, GROUP, f"nobody-{scene.tag}") for scene in scenes)
    assert comparable(ours) == comparable(theirs)
    assert listed_groups(scenes[0]) == listed_groups(scenes[1]) == {"configured-"}
    for scene in scenes:
        group = f"configured-{scene.tag}"
        assert changed(scene, group, (SESSION, DELETE, None), ("share.auto.offset.reset", DELETE, None))[0] == 0
        wait_for(scene, group, SESSION, USUAL_SESSION)
    assert listed_groups(scenes[0]) == listed_groups(scenes[1]) == set()


def comparable(entries: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Of the assignment interval Kafka tells its default, whatever the broker's file says, and then uses the file's."""
    entries["consumer.assignment.interval.ms"].pop("value")
    return entries


@pytest.mark.parametrize(
    ("group", "operations"),
    [
        ("g", [(SESSION, SET, "soon")]),
        ("g", [(SESSION, SET, "0")]),
        ("g", [(SESSION, SET, "100")]),
        ("g", [(SESSION, SET, "60001")]),
        ("g", [(HEARTBEAT, SET, "10")]),
        ("g", [(HEARTBEAT, SET, "15001")]),
        ("g", [(HEARTBEAT, SET, "12000")]),
        ("g", [("consumer.assignment.interval.ms", SET, "15001")]),
        ("g", [("consumer.assignment.interval.ms", SET, "-1")]),
        ("g", [("share.session.timeout.ms", SET, "44999")]),
        ("g", [("share.auto.offset.reset", SET, "none")]),
        ("g", [("share.auto.offset.reset", SET, "by_duration:PT")]),
        ("g", [("share.isolation.level", SET, "any")]),
        ("g", [("share.renew.acknowledge.enable", SET, "perhaps")]),
        ("g", [("share.delivery.count.limit", SET, "1")]),
        ("g", [("share.partition.max.record.locks", SET, "4001")]),
        ("g", [("streams.num.standby.replicas", SET, "3")]),
        ("g", [("streams.session.timeout.ms", SET, "45000"), ("streams.heartbeat.interval.ms", SET, "15001")]),
        ("g", [("no.such.key", SET, "1")]),
        ("g", [(SESSION, APPEND, "1")]),
        ("", [(SESSION, SET, "5000")]),
    ],
)
def test_what_groups_are_refused_is_the_same(
    scenes: tuple[Scene, Scene], group: str, operations: list[tuple[str, int, str | None]]
) -> None:
    ours, theirs = (changed(scene, group, *operations) for scene in scenes)
    assert ours == theirs
    assert ours[0] != 0


def test_all_settings_of_a_group_are_replaced_in_the_same_way(scenes: tuple[Scene, Scene]) -> None:
    for settings, code in (({SESSION: "5000"}, 0), ({HEARTBEAT: "100"}, 0), ({"x": "1"}, 40)):
        for scene in scenes:
            configs = [{"name": key, "value": value} for key, value in settings.items()]
            resource = {"resource_type": GROUP, "resource_name": f"replaced-{scene.tag}", "configs": configs}
            [answer] = scene.connection.ask(
                ALTER_CONFIGS, 2, {"resources": [resource], "validate_only": False}
            ).responses
            assert answer.error_code == code
    for scene in scenes:
        group = f"replaced-{scene.tag}"
        wait_for(scene, group, HEARTBEAT, "100")
        assert described(scene, GROUP, group)[SESSION]["value"] == USUAL_SESSION


def test_members_feel_the_settings_of_their_group(scenes: tuple[Scene, Scene]) -> None:
    """The broker tells each member how often to send heartbeats; a group may have its own answer."""
    joining = {"rebalance_timeout": 10_000, "topic_partitions": [], "subscribed_topic_names": ["none"]}

    def interval(scene: Scene, group: str) -> float:
        answer = scene.connection.ask(CONSUMER_GROUP_HEARTBEAT, 1, beating(group, "a-member", 0, **joining))
        assert answer.error_code == 0, answer
        return float(answer.heartbeat_interval.total_seconds())

    for scene in scenes:
        group = f"felt-{scene.tag}"
        assert interval(scene, group) == 0.15
        for operation, seconds in (((HEARTBEAT, SET, "700"), 0.7), ((HEARTBEAT, DELETE, None), 0.15)):
            assert changed(scene, group, operation)[0] == 0
            wait_for(scene, group, HEARTBEAT, str(round(seconds * 1000)))
            assert interval(scene, group) == seconds
