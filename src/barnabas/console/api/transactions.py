"""Transactions: which are open, since when, and an end for one whose producer does not come back."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final

from starlette.routing import Route

from barnabas.console.api.answers import InvalidQuestion, body_of, changed, endpoint, field, session_of

if TYPE_CHECKING:
    from starlette.requests import Request

    from barnabas.clients.admin.cluster_admin import ClusterAdmin
    from barnabas.clients.admin.transactions import Transaction

MOST: Final = 500
"""Transactional ids that are described; there may be many, of which few are at work."""
AT_WORK: Final = ("Ongoing", "PrepareCommit", "PrepareAbort", "PrepareEpochFence")


@endpoint
async def listing(request: Request) -> object:
    """All transactional ids; those that are at work in full."""
    return await session_of(request).connections.ask(_listing)


def _listing(cluster: ClusterAdmin) -> dict[str, Any]:
    listed = cluster.transactions.listing()
    working = [each.transactional_id for each in listed if each.state in AT_WORK][:MOST]
    rest = [each.transactional_id for each in listed if each.state not in AT_WORK][: MOST - len(working)]
    found = cluster.transactions.describe([*working, *rest])
    now = time.time() * 1000
    return {
        "count": len(listed),
        "transactions": [
            {
                "id": each.transactional_id,
                "state": each.state,
                "producer": each.producer_id,
                "epoch": each.producer_epoch,
                "coordinator": each.coordinator,
                "timeout": each.timeout_ms,
                "age": _age(each, now),
                "partitions": [str(place) for place in each.partitions],
            }
            for each in found.values()
        ],
    }


def _age(found: Transaction, now: float) -> int | None:
    """For how many milliseconds a transaction has been open; a coordinator tells when one began also after its end."""
    if found.started_ms is None or found.state not in AT_WORK:
        return None
    return max(0, round(now - found.started_ms))


@endpoint
async def end(request: Request) -> object:
    """Abort what is open under a transactional id, and fence its producer; the id has to be typed."""
    body = await body_of(request)
    transactional_id = field(body, "id", str)
    if body.get("confirm") != transactional_id:
        raise InvalidQuestion(f"Type the id {transactional_id} to confirm.")
    await changed(
        request,
        "abort transaction",
        transactional_id,
        lambda cluster: cluster.transactions.force_terminate(transactional_id),
    )
    return {}


ROUTES = (
    Route("/api/transactions", listing),
    Route("/api/transactions/abort", end, methods=["POST"]),
)
