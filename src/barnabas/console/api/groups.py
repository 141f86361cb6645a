"""Groups of all kinds: the list, one in full, a reset that is shown before it is done, and their end."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from starlette.routing import Route

from barnabas.clients.admin.groups import GroupInfo
from barnabas.clients.errors import RequestRefused
from barnabas.console.api.answers import (
    InvalidQuestion,
    NotFound,
    answer,
    body_of,
    changed,
    endpoint,
    field,
    session_of,
)
from barnabas.console.api.topics import find_topic
from barnabas.console.cluster.group_lags import NO_ANSWER, lag_of
from barnabas.console.cluster.group_looks import SHARE, offsets_of
from barnabas.console.cluster.queues import NO_QUEUE
from barnabas.console.cluster.resets import WAYS, ResetStep, plan_reset
from barnabas.model.ids import TopicPartition

if TYPE_CHECKING:
    from starlette.requests import Request

    from barnabas.clients.admin.cluster_admin import ClusterAdmin
    from barnabas.console.cluster.group_lags import GroupState
    from barnabas.console.sessions import ConsoleSession


@endpoint
async def listing(request: Request) -> object:
    """All groups, a row each."""
    groups = await session_of(request).observer.groups(fresh="fresh" in request.query_params)
    return {
        "groups": [
            {
                "id": each.id,
                "type": each.type,
                "state": each.shown_state,
                "lag": each.lag,
                "topics": each.topics[:50],
            }
            for each in groups.groups.values()
        ],
        "error": groups.error,
    }


async def _find(session: ConsoleSession, group_id: str) -> GroupState:
    groups = await session.observer.groups()
    if group_id not in groups.groups:
        groups = await session.observer.groups(fresh=True)
    if group_id not in groups.groups:
        raise NotFound(f"There is no group {group_id}, or you may not see it.")
    return groups.groups[group_id]


@endpoint
async def describe(request: Request) -> object:
    """One group: members, who reads what, and how far they are; of a queue also what is in flight (cluster/queues)."""
    session, group_id = session_of(request), request.query_params.get("id", "")
    group = await _find(session, group_id)
    snapshot = await session.observer.snapshot()
    look, silent = await session.observer.group(group)
    info = None if look is None else look.info
    offsets = group.offsets if look is None else look.offsets
    members = info.members if isinstance(info, GroupInfo) else ()
    owners = {place: member for member in members for place in member.assignment}
    places = sorted(set(offsets) | set(owners))
    queue = NO_QUEUE
    if group.type == SHARE:
        state = await session.observer.queue(group.id)
        queue = state.document(offsets, snapshot, await session.observer.disks())
    return {
        **queue,
        "at": snapshot.at,
        "id": group.id,
        "type": info.type if isinstance(info, GroupInfo) else group.type,
        "state": NO_ANSWER if silent is not None else info.state if isinstance(info, GroupInfo) else group.state,
        "assignor": info.assignor if isinstance(info, GroupInfo) else None,
        "coordinator": info.coordinator.id if isinstance(info, GroupInfo) else group.coordinator,
        "silent": silent,
        "is_known": look is not None,
        "epoch": info.epoch if isinstance(info, GroupInfo) else None,
        "refusal": str(info) if isinstance(info, RequestRefused) else None,
        "members": [
            {
                "id": member.member_id,
                "instance": member.instance_id,
                "client": member.client_id,
                "host": member.host,
                "epoch": member.epoch,
                "partitions": [str(place) for place in member.assignment],
                "target": None
                if member.target_assignment is None
                else [str(place) for place in member.target_assignment if place not in member.assignment],
            }
            for member in members
        ],
        "partitions": [
            {
                "topic": place.topic,
                "partition": place.partition,
                "offset": offsets.get(place),
                "end": snapshot.ends.get(place),
                "lag": _lag(group, place, offsets.get(place), snapshot.ends.get(place)),
                "member": None if place not in owners else owners[place].client_id,
                "host": None if place not in owners else owners[place].host,
            }
            for place in places
        ],
    }


def _lag(group: GroupState, place: TopicPartition, offset: int | None, end: int | None) -> int | None:
    """What is left; of a share group what its coordinator says, for messages behind its start may be done."""
    if group.type == SHARE:
        return group.lags.get(place)
    return None if offset is None else lag_of(end, offset)


async def _wanted_partitions(session: ConsoleSession, group: GroupState, body: dict[str, Any]) -> list[TopicPartition]:
    topic = body.get("topic")
    if not topic:
        return sorted(group.offsets)
    if not isinstance(topic, str):
        raise InvalidQuestion("topic is a name.")
    return [TopicPartition(topic, each.number) for each in (await find_topic(session, topic)).partitions]


@endpoint
async def reset(request: Request) -> object:
    """Show where a group would go on, or let it go on there."""
    session, body = session_of(request), await body_of(request)
    group = await _find(session, field(body, "id", str))
    way, value = field(body, "way", str), body.get("value", 0)
    if way not in WAYS or not isinstance(value, int):
        raise InvalidQuestion(f"A reset goes to one of {', '.join(WAYS)}, and its value is a number.")
    partitions = await _wanted_partitions(session, group, body)
    if not partitions:
        raise InvalidQuestion("The group has no offsets. Choose a topic.")

    def plan(cluster: ClusterAdmin) -> list[ResetStep]:
        return plan_reset(cluster, offsets_of(cluster, group), partitions, way, value)

    if not body.get("execute"):
        steps = await session.connections.ask(plan)
        return {"steps": [step.document() for step in steps], "executed": False}

    def execute(cluster: ClusterAdmin) -> list[ResetStep]:
        steps = plan(cluster)
        offsets = {step.partition: step.after for step in steps}
        if group.type == SHARE:
            cluster.share_groups.alter(group.id, offsets)
        else:
            cluster.groups.commit(group.id, offsets)
        return steps

    steps = await changed(request, "reset group", group.id, execute, way=way, value=value, topic=body.get("topic"))
    await session.observer.groups(fresh=True)
    return {"steps": [step.document() for step in steps], "executed": True}


@endpoint
async def delete(request: Request) -> object:
    """Delete a group and its offsets; its name has to be typed."""
    session, body = session_of(request), await body_of(request)
    group = await _find(session, field(body, "id", str))
    if body.get("confirm") != group.id:
        raise InvalidQuestion(f"Type the name {group.id} to confirm.")

    def run(cluster: ClusterAdmin) -> None:
        refused = cluster.groups.delete([group.id])[group.id]
        if refused is not None:
            raise refused

    await changed(request, "delete group", group.id, run)
    await session.observer.groups(fresh=True)
    return answer({})


ROUTES = (
    Route("/api/groups", listing),
    Route("/api/group", describe),
    Route("/api/group", delete, methods=["DELETE"]),
    Route("/api/group/reset", reset, methods=["POST"]),
)
