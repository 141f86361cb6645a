"""Where settings lie in the tree. Names of groups may be any text, and paths may not."""

from __future__ import annotations

import pytest

from barnabas.machines.controller.image import ALL_BROKERS, ConfigResource
from barnabas.metadata.znodes import ConfigNode


@pytest.mark.parametrize(
    ("resource", "path"),
    [
        (ConfigResource.topic("t"), "/config/topics/t"),
        (ConfigResource.broker(1), "/config/brokers/1"),
        (ALL_BROKERS, "/config/brokers/<default>"),
        (ConfigResource("groups", "billing-2.x_y"), "/config/groups/billing-2.x_y"),
        (ConfigResource("groups", "a/b c~"), "/config/groups/a%2Fb%20c%7E"),
        (ConfigResource("groups", "<default>"), "/config/groups/%3Cdefault%3E"),
        (ConfigResource("groups", ".."), "/config/groups/%2E%2E"),
        (ConfigResource("groups", "100%"), "/config/groups/100%25"),
        (ConfigResource.user("CN=a b,O=c"), "/config/users/CN%3Da%20b%2CO%3Dc"),
        (ConfigResource.user("<default>"), "/config/users/%3Cdefault%3E"),
        (ConfigResource.user(""), "/config/users/<default>"),
        (ConfigResource("clients", "a/b"), "/config/clients/a%2Fb"),
        (ConfigResource("clients", ""), "/config/clients/<default>"),
        (ConfigResource("users", "a/clients", "c d"), "/config/users/a%2Fclients/clients/c%20d"),
        (ConfigResource("users", "", ""), "/config/users/<default>/clients/<default>"),
        (ConfigResource("users", "clients", "<default>"), "/config/users/clients/clients/%3Cdefault%3E"),
        (ConfigResource("ips", "10.0.0.1"), "/config/ips/10.0.0.1"),
        (ConfigResource("ips", "2001:db8::1"), "/config/ips/2001:db8::1"),
        (ConfigResource("ips", ""), "/config/ips/<default>"),
    ],
)
def test_paths(resource: ConfigResource, path: str) -> None:
    assert ConfigNode.path(resource) == path
    assert ConfigNode.resource(path) == resource


def test_other_kinds_are_left_alone() -> None:
    assert ConfigNode.resource("/config/client-metrics/app") is None
    assert ConfigNode.resource("/config/groups/<default>") is None
    assert ConfigNode.resource("/config/users/alice/clients") is None
    assert ConfigNode.resource("/config/clients/app/users/alice") is None
