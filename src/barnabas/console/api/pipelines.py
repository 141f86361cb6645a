"""Pipelines and loads: from what they report of themselves, and from the groups that show how far they are."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from starlette.routing import Route

from barnabas.console.api.answers import endpoint, session_of
from barnabas.console.cluster.pipelines import MOST_LETTERS
from barnabas.model.internal_topics import PIPELINE_METRICS

if TYPE_CHECKING:
    from starlette.requests import Request

    from barnabas.console.cluster.group_lags import GroupStates


@endpoint
async def listing(request: Request) -> object:
    """All queries that have reported."""
    session = session_of(request)
    found, error = await session.observer.reports()
    groups = await session.observer.groups()
    return {
        "topic": PIPELINE_METRICS,
        "pipelines": [_row(reports, groups) for reports in found.values()],
        "error": error,
    }


def _row(reports: list[dict[str, Any]], groups: GroupStates) -> dict[str, Any]:
    last = reports[-1]
    group = groups.groups.get(last.get("group", last["query"]))
    return {
        **last,
        "lag_now": None if group is None else group.lag,
        "dead_letters_seen": sum(each.get("dead_letters", 0) for each in reports),
        "letters": [place for each in reversed(reports) for place in each.get("letters", ())][:MOST_LETTERS],
        "batches": [
            {name: each.get(name) for name in ("at", "rows", "seconds", "rows_per_second", "lag")} for each in reports
        ],
    }


ROUTES = (Route("/api/pipelines", listing),)
