"""The first page: what is wrong, who is there, what flows."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any, Final

from starlette.routing import Route

from barnabas.clients.admin.configs import EntityType
from barnabas.clients.errors import BrokerUnreachable, RequestRefused
from barnabas.console.api.answers import NotFound, endpoint, number, session_of
from barnabas.console.cluster.problems import Observations, find_problems, topics_out_of_sync, total
from barnabas.console.history import KEPT_SECONDS

if TYPE_CHECKING:
    from starlette.requests import Request

    from barnabas.clients.admin.cluster_admin import ClusterAdmin
    from barnabas.console.cluster.snapshot import ClusterSnapshot
    from barnabas.console.sessions import ConsoleSession

LISTED: Final = 6
MOST_TOPICS_ASKED: Final = 200
"""Of topics with replicas out of sync, so many are asked for min.insync.replicas."""
POINTS: Final = 180


@endpoint
async def overview(request: Request) -> object:
    """The state of the cluster, worst first."""
    session = session_of(request)
    observer, sampler = session.observer, request.app.state.sampler
    snapshot = await observer.snapshot()
    groups, disks, moves, least_isr, traffic = await asyncio.gather(
        observer.groups(), observer.disks(), observer.moves(), _least_isr(session, snapshot), sampler.traffic()
    )
    observed = Observations(
        snapshot=snapshot,
        disks=disks,
        groups=groups,
        least_isr=least_isr,
        growing=sampler.growing(),
        moving=len(moves),
        start_again=request.app.state.settings.start_again,
    )
    shown = [topic for topic in snapshot.topics.values() if not topic.internal]
    rates = observer.rates()
    by_topic: dict[str, float] = {}
    for place, rate in rates.items():
        if place.topic in snapshot.topics and snapshot.topics[place.topic].internal:
            continue
        by_topic[place.topic] = by_topic.get(place.topic, 0.0) + rate
    busiest = sorted(((rate, name) for name, rate in by_topic.items() if rate > 0), reverse=True)[:LISTED]
    behind = sorted(((group.lag, group.id) for group in groups.groups.values() if group.lag), reverse=True)[:LISTED]
    return {
        "at": snapshot.at,
        "cluster": snapshot.cluster_id,
        "controller": snapshot.controller,
        "brokers": broker_rows(snapshot),
        "topics": len(shown),
        "partitions": sum(len(topic.partitions) for topic in shown),
        "groups": len(groups.groups),
        "lag": sum(group.lag for group in groups.groups.values()),
        "disk": sum(replica.size for dirs in disks.directories.values() for each in dirs for replica in each.replicas),
        "records": round(total(rates), 1),
        "under_replicated": snapshot.under_replicated,
        "traffic": None if traffic is None else traffic._asdict(),
        "problems": [problem.document() for problem in find_problems(observed)],
        "busiest": [{"topic": name, "rate": round(rate, 1)} for rate, name in busiest],
        "behind": [
            {"group": name, "lag": lag, "state": groups.groups[name].shown_state, "type": groups.groups[name].type}
            for lag, name in behind
        ],
        "history_failure": sampler.failure,
        "metrics_failure": sampler.metrics_failure,
    }


def broker_rows(snapshot: ClusterSnapshot) -> list[dict[str, Any]]:
    """Brokers, with how much each leads and holds."""
    leads: dict[int, int] = {}
    holds: dict[int, int] = {}
    preferred: dict[int, int] = {}
    for topic in snapshot.topics.values():
        for partition in topic.partitions:
            if partition.leader is not None:
                leads[partition.leader] = leads.get(partition.leader, 0) + 1
            if partition.replicas:
                preferred[partition.replicas[0]] = preferred.get(partition.replicas[0], 0) + 1
            for replica in partition.replicas:
                holds[replica] = holds.get(replica, 0) + 1
    return [
        {
            "id": broker.id,
            "host": broker.host,
            "port": broker.port,
            "rack": broker.rack,
            "up": broker.up,
            "silent": snapshot.silent.get(broker.id),
            "controller": broker.id == snapshot.controller,
            "leads": leads.get(broker.id, 0),
            "preferred": preferred.get(broker.id, 0),
            "holds": holds.get(broker.id, 0),
        }
        for broker in snapshot.brokers.values()
    ]


async def _least_isr(session: ConsoleSession, snapshot: ClusterSnapshot) -> dict[str, int]:
    names = topics_out_of_sync(snapshot)[:MOST_TOPICS_ASKED]
    return await session.observer.ask(lambda cluster: least_in_sync(cluster, names)) if names else {}


def least_in_sync(cluster: ClusterAdmin, names: list[str]) -> dict[str, int]:
    """min.insync.replicas of topics; nothing of those that the user may not see."""
    try:
        found = cluster.configs.describe(EntityType.TOPICS, names)
    except (RequestRefused, BrokerUnreachable):
        return {}
    return {
        topic: int(setting.value)
        for topic, settings in found.items()
        for setting in settings
        if setting.name == "min.insync.replicas" and setting.value
    }


@endpoint
async def history(request: Request) -> object:
    """Points of series: of the whole cluster, or of a topic or group that the user may see."""
    session = session_of(request)
    seconds = min(number(request, "seconds", 3600, least=60), KEPT_SECONDS)
    now = time.time()
    found = {}
    for name in request.query_params.getlist("name")[:20]:
        kind, _, of = name.partition(":")
        if of and session.user is not None and not await _may_see(session, kind, of):
            raise NotFound(f"There is no {of}, or you may not see it.")
        points = await request.app.state.history.read(name, now - seconds, now, POINTS)
        found[name] = [[round(point.at), point.value] for point in points]
    return {"now": now, "seconds": seconds, "series": found}


async def _may_see(session: ConsoleSession, kind: str, of: str) -> bool:
    if kind == "lag":
        return of in (await session.observer.groups()).groups
    return of in (await session.observer.snapshot()).topics


ROUTES = (Route("/api/overview", overview), Route("/api/history", history))
