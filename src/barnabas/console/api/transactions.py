"""Transactions: which are open, since when, and an end for one whose producer does not come back."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from starlette.routing import Route

from barnabas.console.api.answers import InvalidQuestion, body_of, changed, endpoint, field, session_of
from barnabas.console.cluster.transactions import AT_WORK

if TYPE_CHECKING:
    from starlette.requests import Request

    from barnabas.clients.admin.transactions import Transaction


@endpoint
async def listing(request: Request) -> object:
    """All transactional ids; those that are at work in full."""
    listed = await session_of(request).observer.transactions()
    now = time.time() * 1000
    return {
        "count": listed.known,
        "silent": listed.silent,
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
            for each in listed.transactions
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
