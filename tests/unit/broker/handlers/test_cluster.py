"""DescribeCluster: the brokers and the controller."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from kio.schema.describe_cluster.v2.request import DescribeClusterRequest

from barnabas.broker.handlers.cluster import describe_cluster
from barnabas.model.errors import ErrorCode
from barnabas.protocol.wire.conversion import zero
from tests.support.images import CALLER, ClusterOf, telling_broker

if TYPE_CHECKING:
    from kio.schema.describe_cluster.v2.response import DescribeClusterResponse


async def describe(cluster: ClusterOf, **values: Any) -> DescribeClusterResponse:
    return await describe_cluster(telling_broker(cluster), zero(DescribeClusterRequest, **values), CALLER)


async def test_brokers_are_told_as_the_callers_listener_advertises_them() -> None:
    response = await describe(
        ClusterOf({2: ("PLAINTEXT",), 1: ("PLAINTEXT", "INTERNAL"), 3: ("INTERNAL",)}, controller_id=2)
    )
    assert response.error_code is ErrorCode.none
    assert [(node.broker_id, node.host, node.port, node.rack, node.is_fenced) for node in response.brokers] == [
        (1, "plaintext-1", 9001, "rack-1", False),
        (2, "plaintext-2", 9002, "rack-2", False),
    ]
    assert (response.cluster_id, response.controller_id) == ("a-cluster", 2)


async def test_a_controller_that_the_caller_cannot_reach_is_not_told() -> None:
    assert (await describe(ClusterOf({1: ("PLAINTEXT",), 3: ("INTERNAL",)}, controller_id=3))).controller_id == -1


async def test_operations_are_told_when_asked_for() -> None:
    asked = await describe(ClusterOf(), include_cluster_authorized_operations=True)
    assert asked.cluster_authorized_operations == 8096
    assert (await describe(ClusterOf())).cluster_authorized_operations == -(2**31)


@pytest.mark.parametrize(
    ("endpoint_type", "error", "message"),
    [
        (2, ErrorCode.mismatched_endpoint_type, "of type BROKER, but we wanted an endpoint of type CONTROLLER"),
        (9, ErrorCode.unsupported_endpoint_type, "Unsupported endpoint type 9"),
    ],
)
async def test_only_brokers_are_told(endpoint_type: int, error: ErrorCode, message: str) -> None:
    response = await describe(ClusterOf(), endpoint_type=endpoint_type)
    assert response.error_code is error
    assert message in (response.error_message or "")
    assert response.brokers == ()
