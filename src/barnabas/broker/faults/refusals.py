"""The answer to a request that a fault fails: its API's error response, in the version of the request.

A refused Fetch keeps its session going: the client is told the error for each partition of the session, as by a broker
that does not lead them, and fetches on. An error of the session itself is told as such.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from barnabas.broker.serving.caller import Caller
from barnabas.model.errors import ErrorCode
from barnabas.net.reply import HANG_UP, Answer
from barnabas.protocol.apis import ApiKey
from barnabas.protocol.messages import fetch_response, produce
from barnabas.protocol.wire import codec, error_responses

if TYPE_CHECKING:
    from barnabas.broker.context import BrokerContext
    from barnabas.broker.faults.intercepted_request import InterceptedRequest
    from barnabas.net.connection import Connection

MESSAGE: Final = "a test asked for this error"
SESSION_ERRORS: Final = frozenset(
    {
        ErrorCode.fetch_session_id_not_found,
        ErrorCode.invalid_fetch_session_epoch,
        ErrorCode.fetch_session_topic_id_error,
    }
)


def refuse(broker: BrokerContext, connection: Connection, intercepted: InterceptedRequest, code: ErrorCode) -> Answer:
    """Answer the whole request with this error; nothing is done."""
    key = intercepted.api.key
    if key is ApiKey.PRODUCE:
        return _refuse_produce(intercepted, code)
    if key is ApiKey.FETCH:
        return _refuse_fetch(broker, intercepted, code)
    if key is ApiKey.METADATA:
        response = _refuse_metadata(broker, connection, intercepted, code)
    else:
        newest = intercepted.api.newest
        response = error_responses.error_response(key, intercepted.version, newest, intercepted.request, code, MESSAGE)
    return codec.encode(key, intercepted.version, intercepted.header.correlation_id, response)


def _refuse_produce(intercepted: InterceptedRequest, code: ErrorCode) -> Answer:
    request = intercepted.request
    if request.acks == 0:
        return HANG_UP
    failures = [produce.failure(topic, index, code, MESSAGE) for topic, index, _ in request.partitions]
    return produce.pack(intercepted.header.correlation_id, intercepted.version, failures)


def _refuse_fetch(broker: BrokerContext, intercepted: InterceptedRequest, code: ErrorCode) -> Answer:
    request, version, correlation_id = intercepted.request, intercepted.version, intercepted.header.correlation_id
    if code in SESSION_ERRORS and version >= fetch_response.SESSIONS:
        return fetch_response.pack(correlation_id, version, code, 0, _nothing())
    now_ms = broker.clock.now_ms()
    context = broker.fetch_sessions.begin(
        request.session_id,
        request.session_epoch,
        request.partitions,
        request.forgotten,
        use_ids=version >= fetch_response.TOPIC_IDS,
        follower=request.replica_id >= 0,
        now_ms=now_ms,
    )
    context.look_at_all()
    aborted = () if request.read_committed else None
    failures: list[fetch_response.FetchedPartition[Any, bytes]] = [
        fetch_response.FetchedPartition(partition, int(code), aborted=aborted) for partition in context.partitions
    ]
    session_id, error, told = context.finish(failures, now_ms)
    return fetch_response.pack(correlation_id, version, error, session_id, told)


def _nothing() -> list[fetch_response.FetchedPartition[Any, bytes]]:
    return []


def _refuse_metadata(
    broker: BrokerContext, connection: Connection, intercepted: InterceptedRequest, code: ErrorCode
) -> Any:
    """All brokers, since a client ignores an answer without brokers, and each topic with the error."""
    from kio.schema.metadata.v13.request import MetadataRequestTopic
    from kio.schema.types import TopicName

    from barnabas.broker.handlers.metadata import metadata

    request = intercepted.request
    caller = Caller(listener=connection.listener, address=connection.address, client_id=intercepted.client_id)
    response = metadata(
        broker, replace(request, topics=(), allow_auto_topic_creation=False), caller, intercepted.version
    )
    if request.topics is None:
        every = tuple(
            MetadataRequestTopic(topic_id=None, name=TopicName(name)) for name in broker.metadata.image.topics
        )
        request = replace(request, topics=every)
    failed = error_responses.error_response(
        ApiKey.METADATA, intercepted.version, intercepted.api.newest, request, code, MESSAGE
    )
    return replace(response, topics=failed.topics)  # type: ignore[type-var]  # without topics to make, it is no coroutine
