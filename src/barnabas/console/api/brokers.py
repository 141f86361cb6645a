"""Brokers: how leaders and replicas are spread, what is being moved, directories and settings."""

from __future__ import annotations

import fnmatch
import re
from typing import TYPE_CHECKING, Any, Final

import anyio.to_thread
from starlette.routing import Route

from barnabas.clients.admin.configs import EntityType
from barnabas.clients.admin.replicas import Election
from barnabas.clients.errors import RequestRefused
from barnabas.console.api.answers import (
    InvalidQuestion,
    NotFound,
    body_of,
    changed,
    endpoint,
    field,
    is_small_number,
    session_of,
)
from barnabas.console.api.overview import broker_rows
from barnabas.console.api.settings_of import SettingsChange, setting_row
from barnabas.console.cluster.problems import Observations, find_problems
from barnabas.console.cluster.reassignment import ImpossiblePlan, PlannedMove, plan_moves
from barnabas.model.errors import ErrorCode
from barnabas.model.ids import TopicPartition

if TYPE_CHECKING:
    from starlette.requests import Request

    from barnabas.clients.admin.cluster_admin import ClusterAdmin
    from barnabas.clients.admin.log_dirs import LogDir
    from barnabas.clients.admin.replicas import Reassignment
    from barnabas.console.cluster.snapshot import ClusterSnapshot, Disks

LARGEST: Final = 20
MOST_NOTED: Final = 1_000
"""Moves that the audit log has by name."""


@endpoint
async def listing(request: Request) -> object:
    """All brokers, and moves that are under way."""
    observer = session_of(request).observer
    snapshot, moves = await observer.snapshot(), await observer.moves()
    disks = await (observer.disks_while_moving() if moves else observer.disks())
    rows = broker_rows(snapshot)
    for row in rows:
        row["directories"] = [_directory(each) for each in disks.directories.get(row["id"], [])]
        row["size"] = sum(each["size"] for each in row["directories"])
    return {"brokers": rows, "moves": [_move(place, move, disks) for place, move in sorted(moves.items())]}


def _directory(directory: LogDir) -> dict[str, Any]:
    return {
        "path": directory.path,
        "error": None if directory.error == ErrorCode.none else directory.error.name.upper(),
        "total": directory.total_bytes,
        "usable": directory.usable_bytes,
        "replicas": len(directory.replicas),
        "size": sum(replica.size for replica in directory.replicas),
    }


def _move(place: TopicPartition, move: Reassignment, disks: Disks) -> dict[str, Any]:
    """A move, and how much its new replicas have of what they shall have."""
    size = disks.sizes.get(place, 0)
    whole = size * len(move.adding)
    copied = sum(min(size, _size_on(disks, broker, place)) for broker in move.adding)
    return {
        "topic": place.topic,
        "partition": place.partition,
        "replicas": move.replicas,
        "adding": move.adding,
        "removing": move.removing,
        "copied": copied,
        "size": whole,
    }


def _size_on(disks: Disks, broker: int, place: TopicPartition) -> int:
    return sum(
        replica.size
        for directory in disks.directories.get(broker, [])
        for replica in directory.replicas
        if replica.partition == place
    )


@endpoint
async def describe(request: Request) -> object:
    """One broker."""
    observer, number = session_of(request).observer, request.path_params["id"]
    snapshot, disks = await observer.snapshot(), await observer.disks()
    row = next((each for each in broker_rows(snapshot) if each["id"] == number), None)
    if row is None:
        raise NotFound(f"There is no broker {number}.")
    problems = find_problems(
        Observations(snapshot=snapshot, disks=disks, start_again=request.app.state.settings.start_again)
    )
    directories = disks.directories.get(number, [])
    replicas = sorted((each for directory in directories for each in directory.replicas), key=lambda each: -each.size)
    return {
        **row,
        "problems": [each.document() for each in problems if each.link == f"/brokers/{number}"],
        "directories": [_directory(each) for each in directories],
        "largest": [
            {"topic": each.partition.topic, "partition": each.partition.partition, "size": each.size}
            for each in replicas[:LARGEST]
        ],
    }


@endpoint
async def settings(request: Request) -> object:
    """The settings of a broker, as it tells them."""
    name = str(request.path_params["id"])
    found = await session_of(request).observer.ask_broker(
        request.path_params["id"], lambda cluster: cluster.configs.describe(EntityType.BROKERS, [name])
    )
    return {"settings": [setting_row(setting, "broker") for setting in found.get(name, [])]}


@endpoint
async def alter(request: Request) -> object:
    """Change settings of a broker while it runs."""
    name, change = str(request.path_params["id"]), SettingsChange.of(await body_of(request))
    await changed(
        request,
        "change settings of broker",
        name,
        lambda cluster: change.apply(cluster, EntityType.BROKERS, name),
        names=[*change.set, *change.unset],  # not the values: some are secrets
    )
    return {}


def _is_text(value: object) -> bool:
    return isinstance(value, str)


@endpoint
async def elect(request: Request) -> object:
    """Have every partition led by its preferred leader, where that one is in sync."""

    def run(cluster: ClusterAdmin) -> int:
        found = cluster.replicas.elect_leaders(Election.PREFERRED, None)
        for refused in found.values():
            if refused is not None and refused.code is not ErrorCode.election_not_needed:
                raise refused
        return sum(refused is None for refused in found.values())

    count = await changed(request, "elect preferred leaders", "all partitions", run)
    await session_of(request).observer.snapshot(fresh=True)
    return {"elected": count}


@endpoint
async def cancel(request: Request) -> object:
    """Give up a move: the partition stays where it was."""
    body = await body_of(request)
    topic, partition = body.get("topic"), field(body, "partition", int)
    if not isinstance(topic, str) or not is_small_number(partition):
        raise InvalidQuestion("topic and partition say which move.")
    place = TopicPartition(topic, partition)

    def run(cluster: ClusterAdmin) -> None:
        refused: RequestRefused | None = cluster.replicas.reassign({place: None}).get(place)
        if refused is not None:
            raise refused

    await changed(request, "cancel reassignment", str(place), run)
    await session_of(request).observer.moves(fresh=True)
    return {}


@endpoint
async def plan(request: Request) -> object:
    """Where partitions could be: on the chosen brokers, spread evenly, with few moves. Nothing is changed."""
    observer, body = session_of(request).observer, await body_of(request)
    patterns, chosen, factor = body.get("topics", ["*"]), body.get("brokers"), body.get("replicas")
    if not isinstance(patterns, list) or not all(map(_is_text, patterns)):
        raise InvalidQuestion("topics is a list of names; * stands for any characters.")
    if not isinstance(chosen, list) or not all(map(is_small_number, chosen)):
        raise InvalidQuestion("brokers is a list of numbers.")
    if factor is not None and (not is_small_number(factor) or factor < 1):
        raise InvalidQuestion("replicas is a number from 1.")
    snapshot, disks = await observer.snapshot(fresh=True), await observer.disks(fresh=True)
    moving = await observer.moves(fresh=True)
    racks = {each.id: each.rack for each in snapshot.brokers.values() if each.id in chosen}
    missing = [each for each in chosen if each not in racks or not snapshot.brokers[each].up]
    if missing:
        raise InvalidQuestion(f"Broker {missing[0]} is not there, or is down.")
    replicas = {
        TopicPartition(topic.name, each.number): each.replicas
        for topic in snapshot.topics.values()
        for each in topic.partitions
    }
    wanted = re.compile("|".join(fnmatch.translate(each) for each in patterns) or "(?!)")
    named = [place for place in replicas if wanted.match(place.topic)]
    if not named:
        raise InvalidQuestion("No topic has such a name.")

    def work_out() -> list[PlannedMove]:
        try:
            return plan_moves(replicas, [each for each in named if each not in moving], racks, factor)
        except ImpossiblePlan as error:
            raise InvalidQuestion(str(error)) from error

    moves = await anyio.to_thread.run_sync(work_out)
    return _plan_document(snapshot, disks, replicas, moves, len(named) - len(set(named) - moving.keys()))


def _plan_document(
    snapshot: ClusterSnapshot,
    disks: Disks,
    replicas: dict[TopicPartition, tuple[int, ...]],
    moves: list[PlannedMove],
    moving: int,
) -> dict[str, Any]:
    after = replicas | {move.partition: move.after for move in moves}
    loads = {
        broker: {
            "id": broker,
            "holds": sum(broker in each for each in replicas.values()),
            "leads": sum(each[:1] == (broker,) for each in replicas.values()),
            "then_holds": sum(broker in each for each in after.values()),
            "then_leads": sum(each[:1] == (broker,) for each in after.values()),
            "copies": sum(disks.sizes.get(move.partition, 0) for move in moves if broker in move.adding),
        }
        for broker in sorted(snapshot.brokers)
    }
    return {
        "moves": [
            {
                "topic": move.partition.topic,
                "partition": move.partition.partition,
                "before": move.before,
                "after": move.after,
                "bytes": disks.sizes.get(move.partition, 0) * len(move.adding),
            }
            for move in moves
        ],
        "brokers": list(loads.values()),
        "bytes": sum(each["copies"] for each in loads.values()),
        "moving": moving,
    }


@endpoint
async def move(request: Request) -> object:
    """Move partitions to the replicas that a plan has for them."""
    targets: dict[TopicPartition, list[int]] = {}
    for each in field(await body_of(request), "moves", list):
        match each:
            case [str(topic), int(partition), [_, *_] as replicas] if all(map(is_small_number, [partition, *replicas])):
                targets[TopicPartition(topic, partition)] = replicas
            case _:
                raise InvalidQuestion("A move is a topic, a partition and the brokers that it shall be on.")
    if not targets:
        raise InvalidQuestion("There is nothing to move.")

    def run(cluster: ClusterAdmin) -> None:
        refused = cluster.replicas.reassign(targets)
        if refused:
            place, reason = next(iter(sorted(refused.items())))
            raise RequestRefused(reason.code, f"{len(refused)} of {len(targets)} were refused, first {place}: {reason}")

    await changed(
        request,
        "move partitions",
        f"{len(targets)} partitions",
        run,
        moves={str(place): replicas for place, replicas in list(targets.items())[:MOST_NOTED]},
    )
    await session_of(request).observer.moves(fresh=True)
    return {"moves": len(targets)}


ROUTES = (
    Route("/api/brokers", listing),
    Route("/api/brokers/plan", plan, methods=["POST"]),
    Route("/api/brokers/move", move, methods=["POST"]),
    Route("/api/brokers/elect", elect, methods=["POST"]),
    Route("/api/brokers/cancel", cancel, methods=["POST"]),
    Route("/api/brokers/{id:short}", describe),
    Route("/api/brokers/{id:short}/settings", settings),
    Route("/api/brokers/{id:short}/settings", alter, methods=["PATCH"]),
)
