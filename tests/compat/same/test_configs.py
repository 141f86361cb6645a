"""Every config key, as DescribeConfigs tells it: value, type, source, synonyms, and what may be altered."""

from __future__ import annotations

from typing import Any, Final

import pytest

from tests.compat.same.scene import DESCRIBE_CONFIGS, METADATA, Scene
from tests.support.wire import plain

TOPIC, BROKER = 2, 4

STATIC: Final = 4
"""The source of what server.properties says: there the two brokers were told different things."""
OTHERWISE: Final = {
    "min.insync.replicas",  # set dynamically when a new Kafka is first started
    "listener.security.protocol.map",  # listeners of Barnabas are what they were at its start
}


def described(scene: Scene, kind: int, name: str) -> dict[str, dict[str, Any]]:
    resource = {"resource_type": kind, "resource_name": name, "configuration_keys": None}
    body = {"resources": [resource], "include_synonyms": True, "include_documentation": False}
    [result] = plain(scene.connection.ask(DESCRIBE_CONFIGS, 4, body))["results"]
    assert result["error_code"] == 0
    return {entry.pop("name"): entry for entry in result["configs"]}


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
