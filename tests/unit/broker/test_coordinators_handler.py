"""FindCoordinator: an honest no."""

from __future__ import annotations

import pytest
from kio.schema.find_coordinator.v6.request import FindCoordinatorRequest

from barnabas.broker.handlers.coordinators import find_coordinator
from barnabas.model.errors import ErrorCode
from barnabas.protocol.conversion import zero
from tests.support.images import CALLER, ClusterOf, telling_broker


@pytest.mark.parametrize(
    ("kind", "error", "message"),
    [
        (0, ErrorCode.coordinator_not_available, "no group coordinator yet"),
        (1, ErrorCode.coordinator_not_available, "no transaction coordinator yet"),
        (2, ErrorCode.invalid_request, "kind 2"),
    ],
)
def test_there_is_none_and_the_answer_says_what_to_do(kind: int, error: ErrorCode, message: str) -> None:
    request = zero(FindCoordinatorRequest, key_type=kind, coordinator_keys=("g", "h"))
    response = find_coordinator(telling_broker(ClusterOf()), request, CALLER)
    assert [(one.key, one.node_id, one.host, one.port) for one in response.coordinators] == [
        ("g", -1, "", -1),
        ("h", -1, "", -1),
    ]
    for one in response.coordinators:
        assert one.error_code is error
        assert message in (one.error_message or "")
