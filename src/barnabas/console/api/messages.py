"""Records: searched and followed as server-sent events, one in full, downloaded whole, sent, and sent again."""

from __future__ import annotations

import base64
import json
from collections import Counter
from typing import TYPE_CHECKING, Any, Final

import anyio
import anyio.to_thread
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from barnabas.console.api.answers import (
    InvalidQuestion,
    NotFound,
    body_of,
    changed,
    endpoint,
    field,
    is_small_number,
    number,
    session_of,
)
from barnabas.console.api.topics import find_topic
from barnabas.console.guard import to_json
from barnabas.console.messages.dead_letters import OriginalPlace, original_place
from barnabas.console.messages.decoding import DETAIL_CHARACTERS, FORMATS, ContentDecoder
from barnabas.console.messages.fetching import Leaders, fetch
from barnabas.console.messages.filtering import InvalidFilter, RecordFilter
from barnabas.console.messages.scanning import NEWEST, WAYS, TopicScan, Wanted, record_row
from barnabas.model.base_error import BarnabasError
from barnabas.model.numbers import MAX_INT64
from barnabas.protocol import dead_letters

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator, Sequence

    from starlette.requests import Request

    from barnabas.clients.admin.cluster_admin import ClusterAdmin
    from barnabas.console.messages.fetching import LoggedRecord

MOST_STREAMS: Final = 32
MOST_STREAMS_OF_ONE: Final = 8
"""Searches of one user at the same time, or of one address where nobody logs in."""
MOST_FOUND: Final = 1_000
DEFAULT_FOUND: Final = 50
MOST_SCANNED: Final = 100_000_000
MOST_SECONDS: Final = 3600
SEND_SECONDS: Final = 15.0


def _decoder(request: Request, topic: str) -> ContentDecoder:
    formats = {part: request.query_params.get(part, "auto") for part in ("key", "value")}
    for each in formats.values():
        if each not in FORMATS:
            raise InvalidQuestion(f"{each} is not a format.")
    state = request.app.state
    return ContentDecoder(state.schemas, topic, state.settings.masks, **formats)


async def _wanted(request: Request, topic: str) -> Wanted:
    """What is looked for, of the query."""
    known = [each.number for each in (await find_topic(session_of(request), topic)).partitions]
    query = request.query_params
    way = query.get("from", NEWEST)
    if way not in WAYS:
        raise InvalidQuestion(f"{way} is no place to begin at.")
    partitions = known
    if query.get("partition"):
        partitions = [number(request, "partition")]
        if partitions[0] not in known:
            raise NotFound(f"{topic} has no partition {partitions[0]}.")
    return Wanted(
        topic=topic,
        partitions=tuple(partitions),
        way=way,
        at=number(request, "at", 0),
        positions=_positions(query.get("positions", "")),
        limit=min(number(request, "limit", DEFAULT_FOUND, least=1), MOST_FOUND),
        most_records=min(number(request, "records", 1_000_000, least=1), MOST_SCANNED),
        most_seconds=min(number(request, "seconds", 60, least=1), MOST_SECONDS),
    )


def _positions(text: str) -> dict[int, int]:
    """Offsets by partition, as 0:120,1:77."""
    try:
        pairs = [part.split(":") for part in text.split(",") if part]
        found = {int(partition): int(offset) for partition, offset in pairs}
    except ValueError:
        raise InvalidQuestion("positions are not of the form PARTITION:OFFSET,...") from None
    if not all(0 <= offset <= MAX_INT64 for offset in found.values()):
        raise InvalidQuestion("positions have offsets that no log has.")
    return found


@endpoint
async def stream(request: Request) -> object:
    """Look through a topic; closing the connection stops it."""
    topic = request.path_params["topic"]
    try:
        wanted = await _wanted(request, topic)
        expression = request.query_params.get("filter", "").strip()
        chosen = RecordFilter(expression, topic) if expression else None
    except (BarnabasError, InvalidQuestion, NotFound, InvalidFilter) as error:
        return _events(_only("failed", {"error": str(error)}))
    state, session = request.app.state, session_of(request)
    who = session.user or (request.client.host if request.client else "")
    of_one = MOST_STREAMS if state.settings.behind_proxy and session.user is None else MOST_STREAMS_OF_ONE
    connections = session.connections
    decoder = _decoder(request, topic)

    async def run() -> AsyncIterator[bytes]:
        if state.streams.total() >= MOST_STREAMS or state.streams[who] >= of_one:  # of those that run, in this step
            yield _event("failed", {"error": "Too many searches are under way. Stop one, and try again."})
            return
        state.streams[who] += 1
        limiter = anyio.CapacityLimiter(1)
        try:
            with connections.borrowed() as cluster:
                events = TopicScan(cluster, wanted, decoder, chosen).events()
                while not connections.is_closed:  # the session has ended, and with it what was begun in it
                    found = await anyio.to_thread.run_sync(_next, events, limiter=limiter)
                    if found is None:
                        return
                    yield _event(*found)
        finally:
            state.streams -= Counter((who,))
        yield _event("failed", {"error": "Your login is over. Log in again."})

    return _events(run())


def _next(events: Iterator[tuple[str, dict[str, Any]]]) -> tuple[str, dict[str, Any]] | None:
    try:
        return next(events, None)
    except BarnabasError as error:
        return "failed", {"error": str(error)}


def _event(name: str, data: dict[str, Any]) -> bytes:
    return b"event: %b\ndata: %b\n\n" % (name.encode(), to_json(data))


async def _only(name: str, data: dict[str, Any]) -> AsyncIterator[bytes]:
    yield _event(name, data)


def _events(source: AsyncIterator[bytes]) -> StreamingResponse:
    return StreamingResponse(source, media_type="text/event-stream", headers={"x-accel-buffering": "no"})


async def _find_record(request: Request) -> LoggedRecord:
    """The record that was asked for; raises NotFound."""
    asked = request.path_params
    return await _record_at(request, asked["topic"], asked["partition"], asked["offset"])


async def _record_at(request: Request, topic: str, partition: int, offset: int) -> LoggedRecord:
    """The one record at a place; raises NotFound."""

    def find(cluster: ClusterAdmin) -> LoggedRecord | None:
        stretch = fetch(cluster, Leaders(cluster, topic), topic, partition, offset, end=offset + 1, most_bytes=1)
        return next((each for each in stretch.records if each.offset == offset), None)

    numbers = [each.number for each in (await find_topic(session_of(request), topic)).partitions]
    if partition not in numbers or offset > MAX_INT64:
        raise NotFound(f"{topic} has no partition {partition} with an offset {offset}.")
    found = await session_of(request).connections.ask(find)
    if found is None:
        raise NotFound(f"{topic}-{partition} has no record at offset {offset}: it was compacted away, or never there.")
    return found


@endpoint
async def record(request: Request) -> object:
    """One record with its batch."""
    found = await _find_record(request)
    topic = request.path_params["topic"]
    decoder = _decoder(request, topic)
    row = await anyio.to_thread.run_sync(record_row, found, decoder, DETAIL_CHARACTERS)
    batch = found.batch
    return {
        **row,
        "topic": topic,
        "appended": found.appended,
        "masked": bool(decoder.of(found.headers).masks),
        "origin": (original_place(found.headers) or OriginalPlace(topic, 0, 0)).topic,
        "batch": {
            "offset": batch.base_offset,
            "last": batch.last_offset,
            "records": batch.record_count,
            "bytes": batch.size,
            "codec": found.codec,
            "leader_epoch": batch.leader_epoch,
            "producer": batch.producer_id if batch.producer_id >= 0 else None,
            "producer_epoch": batch.producer_epoch if batch.producer_id >= 0 else None,
            "sequence": batch.base_sequence if batch.base_sequence >= 0 else None,
            "transactional": batch.is_transactional,
        },
    }


@endpoint
async def download(request: Request) -> object:
    """The bytes of a key or value, as a file and never as a page."""
    part, topic = request.path_params["part"], request.path_params["topic"]
    found = await _find_record(request)
    if _masking(request, topic).of(found.headers).masks:
        raise InvalidQuestion("Parts of these records are hidden by a rule, so they cannot be downloaded.")
    data = {"key": found.key, "value": found.value}.get(part)
    if data is None:
        raise NotFound(f"This record has no {part}.")
    name = f"{topic}-{found.partition}-{found.offset}.{part}"
    return Response(
        data,
        media_type="application/octet-stream",
        headers={"content-disposition": f'attachment; filename="{name}"'},
    )


@endpoint
async def send(request: Request) -> object:
    """Send a record."""
    topic, body = request.path_params["topic"], await body_of(request)
    key, value = _bytes(body.get("key"), "key"), _bytes(body.get("value"), "value")
    given = body.get("headers") or []
    if not isinstance(given, list):
        raise InvalidQuestion("headers is a list.")
    headers = [(_name(each), _bytes(each[1], "a header")) for each in given]
    partition = body.get("partition")
    if partition is not None and not is_small_number(partition):
        raise InvalidQuestion("partition is a number from 0.")
    return await _send(request, topic, "send a record to", key, value, headers, partition)


@endpoint
async def send_again(request: Request) -> object:
    """Send a record once more, to its topic or another one; of a dead letter, what had become one."""
    topic, to = request.path_params["topic"], field(await body_of(request), "to", str)
    found = await _find_record(request)
    origin = original_place(found.headers)
    if origin is not None and found.key is None and found.value is None:  # it tells only where the record is
        topic, found = origin.topic, await _record_at(request, *origin)
    if found.control is not None or found.damage is not None:
        raise InvalidQuestion("This is nothing that can be sent.")
    headers = [each for each in found.headers if not each[0].startswith(dead_letters.PREFIX)]
    if not _masking(request, topic).hides_no_less_in(to, found.headers, headers):
        raise InvalidQuestion(
            "Parts of these records are hidden by a rule, so they are not copied to a topic where they could be seen."
        )
    return await _send(request, to, "send a record again to", found.key, found.value, headers)


def _masking(request: Request, topic: str) -> ContentDecoder:
    """What is hidden of a topic's records, some of which may be dead letters of another topic."""
    state = request.app.state
    return ContentDecoder(state.schemas, topic, state.settings.masks)


async def _send(
    request: Request,
    topic: str,
    action: str,
    key: bytes | None,
    value: bytes | None,
    headers: Sequence[tuple[str, bytes | None]],
    partition: int | None = None,
) -> dict[str, int]:
    """Send a record in the user's name; gives where it came to lie."""
    from barnabas.clients.producer.producer import Producer

    await find_topic(session_of(request), topic)
    settings, connections = request.app.state.settings, session_of(request).connections

    def produce(_: ClusterAdmin) -> tuple[int, int]:
        producer: Producer[bytes, bytes] = Producer(
            settings.bootstrap_servers, config=connections.properties, delivery_timeout=SEND_SECONDS
        )
        with producer:
            sent = producer.send(topic, value, key, partition=partition, headers=headers or None)
            producer.flush(SEND_SECONDS + 1)
            place = sent.result(SEND_SECONDS)
        return place.partition, place.offset

    where, offset = await changed(request, action, topic, produce, size=len(value or b""))
    return {"partition": where, "offset": offset}


def _name(header: object) -> str:
    if not isinstance(header, list) or len(header) != 2 or not isinstance(header[0], str):
        raise InvalidQuestion("A header is a name and a value.")
    return header[0]


def _bytes(given: object, what: str) -> bytes | None:
    """The bytes that were typed: null, or a text with the format that it is in."""
    if given is None:
        return None
    if not isinstance(given, dict) or not isinstance(given.get("text"), str):
        raise InvalidQuestion(f"{what} is not a text with a format.")
    text: str = given["text"]
    try:
        match given.get("format", "text"):
            case "text":
                return text.encode()
            case "json":
                json.loads(text)
                return text.encode()
            case "hex":
                return bytes.fromhex(text)
            case "base64":
                return base64.b64decode(text, validate=True)
            case other:
                raise InvalidQuestion(f"{what} cannot be sent as {other}.")
    except (ValueError, RecursionError) as error:
        raise InvalidQuestion(f"The {what} is not {given.get('format')}: {error}.") from error


ROUTES = (
    Route("/api/topics/{topic}/records", stream),
    Route("/api/topics/{topic}/records", send, methods=["POST"]),
    Route("/api/topics/{topic}/records/{partition:short}/{offset:short}", record),
    Route("/api/topics/{topic}/records/{partition:short}/{offset:short}/again", send_again, methods=["POST"]),
    Route("/api/topics/{topic}/records/{partition:short}/{offset:short}/{part}", download),
)
