"""Topics: the list, one in full, and what can be done to them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from starlette.routing import Route

from barnabas.clients.admin.configs import EntityType
from barnabas.clients.admin.topics import NewTopic
from barnabas.clients.errors import RequestRefused
from barnabas.console.api.answers import InvalidQuestion, NotFound, body_of, changed, endpoint, field, session_of
from barnabas.console.api.overview import least_in_sync
from barnabas.console.api.settings_of import SettingsChange, setting_row, texts_of
from barnabas.model.ids import TopicPartition

if TYPE_CHECKING:
    from starlette.requests import Request

    from barnabas.clients.admin.cluster_admin import ClusterAdmin
    from barnabas.console.cluster.snapshot import Disks, TopicSnapshot
    from barnabas.console.sessions import ConsoleSession


@endpoint
async def listing(request: Request) -> object:
    """All topics, a row each: of 10,000 topics a name and some numbers are a megabyte."""
    observer = session_of(request).observer
    fresh = "fresh" in request.query_params
    snapshot = await observer.snapshot(fresh=fresh)
    disks = await observer.disks()
    rates = observer.rates()
    return {
        "columns": ["name", "partitions", "replicas", "records", "size", "rate", "internal", "offline", "behind"],
        "rows": [_row(topic, snapshot.ends, disks, rates) for topic in snapshot.topics.values()],
    }


def _row(topic: TopicSnapshot, ends: Any, disks: Disks, rates: dict[TopicPartition, float]) -> list[object]:
    records = size = offline = behind = 0
    rate = 0.0
    for partition in topic.partitions:
        place = TopicPartition(topic.name, partition.number)
        records += max(0, ends.get(place, 0) - disks.starts.get(place, 0))
        size += disks.sizes.get(place, 0)
        rate += rates.get(place, 0.0)
        offline += partition.leader is None
        behind += partition.leader is not None and len(partition.isr) < len(partition.replicas)
    replicas = len(topic.partitions[0].replicas) if topic.partitions else 0
    return [
        topic.name,
        len(topic.partitions),
        replicas,
        records,
        size,
        round(rate, 1),
        int(topic.internal),
        offline,
        behind,
    ]


async def find_topic(session: ConsoleSession, name: str, *, fresh: bool = False) -> TopicSnapshot:
    """A topic as the user sees it; raises NotFound."""
    snapshot = await session.observer.snapshot(fresh=fresh)
    if name not in snapshot.topics and not fresh:
        snapshot = await session.observer.snapshot(fresh=True)
    if name not in snapshot.topics:
        raise NotFound(f"There is no topic {name}, or you may not see it.")
    return snapshot.topics[name]


@endpoint
async def describe(request: Request) -> object:
    """One topic: partitions, settings, and who reads it."""
    session, name = session_of(request), request.path_params["topic"]
    topic = await find_topic(session, name, fresh="fresh" in request.query_params)
    snapshot, disks = await session.observer.snapshot(), await session.observer.disks()
    rates = session.observer.rates()
    least = await session.observer.ask(lambda cluster: least_in_sync(cluster, [name]))
    moves = await session.observer.moves()
    partitions = []
    for each in topic.partitions:
        place = TopicPartition(name, each.number)
        move = moves.get(place)
        partitions.append(
            {
                "number": each.number,
                "leader": each.leader,
                "epoch": each.epoch,
                "replicas": each.replicas,
                "isr": each.isr,
                "start": disks.starts.get(place),
                "end": snapshot.ends.get(place),
                "size": disks.sizes.get(place),
                "rate": round(rates.get(place, 0.0), 1),
                "adding": [] if move is None else move.adding,
                "removing": [] if move is None else move.removing,
            }
        )
    return {
        "at": snapshot.at,
        "name": name,
        "id": topic.id,
        "internal": topic.internal,
        "least_isr": least.get(name),
        "partitions": partitions,
    }


@endpoint
async def settings(request: Request) -> object:
    """The settings of a topic."""
    name = request.path_params["topic"]
    found = await session_of(request).observer.ask(lambda cluster: cluster.configs.describe(EntityType.TOPICS, [name]))
    return {"settings": [setting_row(setting, "topic") for setting in found.get(name, [])]}


@endpoint
async def readers(request: Request) -> object:
    """The groups that have read a topic."""
    name = request.path_params["topic"]
    groups = await session_of(request).observer.groups()
    found = []
    for group in groups.groups.values():
        lags = {place: lag for place, lag in group.lags.items() if place.topic == name}
        if lags:
            lag = sum(each for each in lags.values() if each is not None)
            found.append({"id": group.id, "type": group.type, "state": group.shown_state, "lag": lag})
    return {"groups": found}


@endpoint
async def create(request: Request) -> object:
    """Make a topic."""
    body = await body_of(request)
    name = field(body, "name", str)
    if "\0" in name:
        raise InvalidQuestion("A name has no NUL.")
    partitions, replicas = body.get("partitions"), body.get("replicas")
    for each in (partitions, replicas):
        if each is not None and (not isinstance(each, int) or isinstance(each, bool) or each < 1):
            raise InvalidQuestion("Partitions and replicas are whole numbers from 1.")
    configs = texts_of(body.get("settings", {}))
    topic = NewTopic(name=name, partitions=partitions, replication_factor=replicas, configs=configs)
    await changed(
        request,
        "create topic",
        name,
        lambda cluster: cluster.topics.create_topic(topic),
        partitions=partitions,
        replicas=replicas,
        settings=configs,
    )
    await session_of(request).observer.snapshot(fresh=True)
    return {"name": name}


@endpoint
async def alter(request: Request) -> object:
    """Set some settings of a topic, and return others to their default."""
    name, change = request.path_params["topic"], SettingsChange.of(await body_of(request))
    await changed(
        request,
        "change settings of topic",
        name,
        lambda cluster: change.apply(cluster, EntityType.TOPICS, name),
        **change._asdict(),
    )
    return {}


@endpoint
async def grow(request: Request) -> object:
    """Give a topic more partitions."""
    name, total = request.path_params["topic"], field(await body_of(request), "partitions", int)
    await changed(
        request,
        "add partitions to topic",
        name,
        lambda cluster: cluster.topics.create_partitions(name, total),
        partitions=total,
    )
    await session_of(request).observer.snapshot(fresh=True)
    return {}


@endpoint
async def delete(request: Request) -> object:
    """Delete a topic; the name has to be typed."""
    name = request.path_params["topic"]
    _check_confirmed(await body_of(request), name)
    await changed(request, "delete topic", name, lambda cluster: cluster.topics.delete_topics(name))
    await session_of(request).observer.snapshot(fresh=True)
    return {}


@endpoint
async def clear(request: Request) -> object:
    """Delete all records of a topic; the name has to be typed."""
    name = request.path_params["topic"]
    _check_confirmed(await body_of(request), name)
    topic = await find_topic(session_of(request), name)
    wanted = {TopicPartition(name, each.number): -1 for each in topic.partitions}

    def run(cluster: ClusterAdmin) -> None:
        for result in cluster.offsets.delete_before(wanted).values():
            if isinstance(result, RequestRefused):
                raise result

    await changed(request, "delete records of topic", name, run)
    await session_of(request).observer.disks(fresh=True)
    return {}


def _check_confirmed(body: dict[str, Any], name: str) -> None:
    if body.get("confirm") != name:
        raise InvalidQuestion(f"Type the name {name} to confirm.")


ROUTES = (
    Route("/api/topics", listing),
    Route("/api/topics", create, methods=["POST"]),
    Route("/api/topics/{topic}", describe),
    Route("/api/topics/{topic}", delete, methods=["DELETE"]),
    Route("/api/topics/{topic}/settings", settings),
    Route("/api/topics/{topic}/settings", alter, methods=["PATCH"]),
    Route("/api/topics/{topic}/groups", readers),
    Route("/api/topics/{topic}/partitions", grow, methods=["POST"]),
    Route("/api/topics/{topic}/clear", clear, methods=["POST"]),
)
