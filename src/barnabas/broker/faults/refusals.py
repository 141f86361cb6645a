"""The answer to a request that is to fail: its API's error response, in the version that was asked in.

A refused Fetch keeps its session going: the client is told the error for each partition of the session, as by a broker
that does not lead them, and fetches on. An error of the session itself is told as such.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from barnabas.broker.caller import Caller
from barnabas.model.errors import ErrorCode
from barnabas.net.reply import HANG_UP, Answer
from barnabas.protocol import codec, error_responses, fetch, produce
from barnabas.protocol.apis import ApiKey

if TYPE_CHECKING:
    from barnabas.broker.context import Broker
    from barnabas.broker.faults.asked import Asked
    from barnabas.net.connection import Connection

MESSAGE: Final = "a test asked for this error"
SESSION_ERRORS: Final = frozenset(
    {
        ErrorCode.fetch_session_id_not_found,
        ErrorCode.invalid_fetch_session_epoch,
        ErrorCode.fetch_session_topic_id_error,
    }
)


def refuse(broker: Broker, connection: Connection, asked: Asked, code: ErrorCode) -> Answer:
    """Answer everything that was asked with this error; nothing is done."""
    key = asked.api.key
    if key is ApiKey.PRODUCE:
        return _refuse_produce(asked, code)
    if key is ApiKey.FETCH:
        return _refuse_fetch(broker, asked, code)
    if key is ApiKey.METADATA:
        response = _refuse_metadata(broker, connection, asked, code)
    else:
        newest = asked.api.newest
        response = error_responses.error_response(key, asked.version, newest, asked.request, code, MESSAGE)
    return codec.encode(key, asked.version, asked.header.correlation_id, response)


def _refuse_produce(asked: Asked, code: ErrorCode) -> Answer:
    request = asked.request
    if request.acks == 0:
        return HANG_UP
    failures = [produce.failure(topic, index, code, MESSAGE) for topic, index, _ in request.partitions]
    return produce.pack(asked.header.correlation_id, asked.version, failures)


def _refuse_fetch(broker: Broker, asked: Asked, code: ErrorCode) -> Answer:
    request, version, correlation_id = asked.request, asked.version, asked.header.correlation_id
    if code in SESSION_ERRORS and version >= fetch.SESSIONS:
        return fetch.pack(correlation_id, version, code, 0, _nothing())
    now_ms = broker.clock.now_ms()
    context = broker.fetch_sessions.begin(
        request.session_id,
        request.session_epoch,
        request.partitions,
        request.forgotten,
        use_ids=version >= fetch.TOPIC_IDS,
        follower=request.replica_id >= 0,
        now_ms=now_ms,
    )
    aborted = () if request.read_committed else None
    failures: list[fetch.FetchedPartition[Any, bytes]] = [
        fetch.FetchedPartition(partition, int(code), aborted=aborted) for partition in context.partitions
    ]
    session_id, error, told = context.finish(failures, now_ms)
    return fetch.pack(correlation_id, version, error, session_id, told)


def _nothing() -> list[fetch.FetchedPartition[Any, bytes]]:
    return []


def _refuse_metadata(broker: Broker, connection: Connection, asked: Asked, code: ErrorCode) -> Any:
    """Brokers as ever, since a client that hears of none takes it for no answer; each topic with the error."""
    from kio.schema.metadata.v13.request import MetadataRequestTopic
    from kio.schema.types import TopicName

    from barnabas.broker.handlers.metadata import metadata

    request = asked.request
    caller = Caller(listener=connection.listener, address=connection.address, client_id=asked.client_id)
    response = metadata(broker, replace(request, topics=(), allow_auto_topic_creation=False), caller, asked.version)
    if request.topics is None:
        every = tuple(
            MetadataRequestTopic(topic_id=None, name=TopicName(name)) for name in broker.metadata.image.topics
        )
        request = replace(request, topics=every)
    failed = error_responses.error_response(ApiKey.METADATA, asked.version, asked.api.newest, request, code, MESSAGE)
    return replace(response, topics=failed.topics)  # type: ignore[type-var]  # without topics to make, it is no coroutine
