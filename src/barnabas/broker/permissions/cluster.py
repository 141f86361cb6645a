"""The cluster: what is told of it to those who ask."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from kio.static.primitive import i32

from barnabas.broker.permissions.needs import Admitted, Denied
from barnabas.model.errors import ErrorCode

if TYPE_CHECKING:
    from barnabas.broker.permissions.needs import Asked


def describe_cluster(asked: Asked) -> Admitted | Denied:
    """Nothing; the operations that are told are those that the caller may do, and none without Describe."""
    if not asked.request.include_cluster_authorized_operations:
        return Admitted(asked.request)

    def complete(response: Any) -> Any:
        if response.error_code is not ErrorCode.none:
            return response
        return replace(response, cluster_authorized_operations=i32(asked.access.cluster_operations()))

    return Admitted(asked.request, complete)
