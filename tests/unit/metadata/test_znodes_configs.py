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
    ],
)
def test_paths(resource: ConfigResource, path: str) -> None:
    assert ConfigNode.path(resource) == path
    assert ConfigNode.resource(path) == resource


def test_other_kinds_are_left_alone() -> None:
    assert ConfigNode.resource("/config/clients/app") is None
    assert ConfigNode.resource("/config/users/<default>") is None
    assert ConfigNode.resource("/config/users/alice/clients/app") is None
