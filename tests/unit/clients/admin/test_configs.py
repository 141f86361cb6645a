"""Settings are asked for whole, or only those that somebody wants to see."""

from __future__ import annotations

from typing import Any

import pytest

from barnabas.clients.admin.configs import Configs, EntityType
from barnabas.clients.wire.connection import WireClient
from tests.unit.clients.scripted_broker import ScriptedBroker

DESCRIBE_CONFIGS = 32


def described(request: Any) -> dict[str, Any]:
    configs = [{"name": "retention.ms", "value": "5", "config_source": 5, "config_type": 5}]
    return {"results": [{"resource_type": 2, "resource_name": "orders", "configs": configs}]}


@pytest.mark.parametrize(("only", "keys"), [(None, None), (("retention.ms",), ("retention.ms",)), ((), ())])
def test_only_what_is_wanted_is_asked_for(only: tuple[str, ...] | None, keys: tuple[str, ...] | None) -> None:
    with (
        ScriptedBroker({DESCRIBE_CONFIGS: (1, 4)}, {DESCRIBE_CONFIGS: described}) as broker,
        WireClient(broker.bootstrap) as wire,
    ):
        found = Configs(wire).describe(EntityType.TOPICS, ["orders"], only=only)
    (asked,) = broker.requests[-1].resources
    assert (asked.configuration_keys, broker.requests[-1].include_synonyms) == (keys, only is None)
    assert [(each.name, each.value) for each in found["orders"]] == [("retention.ms", "5")]
