"""Requests in envelopes: who sent them is carried over, and what cannot be opened is refused."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from barnabas.broker.handlers import envelope
from barnabas.broker.serving.caller import Caller, Session
from barnabas.broker.serving.dispatch import Dispatcher
from barnabas.broker.serving.known_clients import KnownClient
from barnabas.model.errors import ErrorCode, InvalidRequest, PrincipalDeserializationFailure
from barnabas.net.reply import HANG_UP
from barnabas.protocol.wire import framing
from tests.support.parts import answer_of, running_parts
from tests.support.served_connection import served_connection
from tests.support.wire import read_response, request

if TYPE_CHECKING:
    from pathlib import Path

    from barnabas.broker.context import BrokerContext

ENVELOPE, CREATE_TOPICS, METADATA = 58, 19, 3
EMPTY = {"request_data": b"", "client_host_address": bytes(4)}
SENDER = Caller(listener="PLAINTEXT", address=("10.0.0.9", 1), client_id="broker-2", session=Session(broker_id=2))
AUTHORIZER = {"authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer"}
BODY = {"topics": [{"name": "t", "num_partitions": 1, "replication_factor": 1}], "timeout": 1000}


def client(principal: str, host: str = "192.0.2.7", client_id: str | None = "wire") -> Caller:
    return Caller(listener="OTHER", address=(host, 5), client_id=client_id, session=Session(principal=principal))


def wrapped(caller: Caller, key: int = CREATE_TOPICS, version: int = 7, values: dict[str, Any] | None = None) -> Any:
    frame = request(key, version, 77, values or BODY)
    header = framing.read_header(memoryview(frame), flexible=True)
    return envelope.wrap(caller, key, version, 77, frame[header.body :], flexible=True)


@pytest.mark.parametrize("principal", ["User:alice", "User:CN=a,O=b:c", "Group:ünï"])
@pytest.mark.parametrize("host", ["192.0.2.7", "2001:db8::1"])
@pytest.mark.parametrize("client_id", ["wire", None, ""])
def test_what_comes_out_is_what_went_in(principal: str, host: str, client_id: str | None) -> None:
    opened = envelope.unwrap(wrapped(client(principal, host, client_id)), SENDER)
    assert (opened.caller.principal, opened.caller.address[0]) == (principal, host)
    assert opened.caller.client_id == client_id
    assert opened.caller.broker_id is None
    assert (opened.key, opened.version, opened.correlation_id) == (CREATE_TOPICS, 7, 77)


@pytest.mark.parametrize("is_token", [True, False])
def test_a_login_by_token_is_still_one_when_it_comes_out(is_token: bool) -> None:
    caller = client("User:alice")
    caller.session.is_token = is_token
    assert envelope.unwrap(wrapped(caller), SENDER).caller.session.is_token is is_token


def test_what_cannot_be_opened_is_refused() -> None:
    good = wrapped(client("User:alice"))
    for data in (None, b"", b"\0", b"\0\1\2a\2b\0\0", b"\0\0\1\2b\0\0", good.request_principal[:-3]):
        with pytest.raises(PrincipalDeserializationFailure):
            envelope.unwrap(replace(good, request_principal=data), SENDER)
    for change in ({"client_host_address": b"\1\2\3"}, {"request_data": b"\0\x13"}, {"request_data": b""}):
        with pytest.raises(InvalidRequest):
            envelope.unwrap(replace(good, **change), SENDER)


@pytest.mark.parametrize("cut", [0, 1, 5])
async def test_a_request_that_cannot_be_read_is_refused_and_not_an_error_of_the_broker(
    tmp_path: Path, cut: int, caplog: pytest.LogCaptureFixture
) -> None:
    good = wrapped(client("User:alice"))
    whole = request(CREATE_TOPICS, 7, 77, BODY)
    header = len(whole) - framing.read_header(memoryview(whole), flexible=True).body
    bad = good.request_data[: len(good.request_data) - header + cut] + b"\xff\xff\xff\xff\x07"
    async with running_parts(tmp_path) as broker:
        answer = await answer_of(serve(broker, replace(good, request_data=bad)))
        assert isinstance(answer, bytes)
        assert read_response(ENVELOPE, 0, answer[4:], 5).error_code is ErrorCode.invalid_request
    assert "Traceback" not in caplog.text


def serve(broker: BrokerContext, sealed: Any, sender: Caller = SENDER) -> Any:
    values = {
        "request_data": sealed.request_data,
        "request_principal": sealed.request_principal,
        "client_host_address": sealed.client_host_address,
    }
    connection = served_connection()
    connection.address = sender.address
    connection.state = KnownClient(b"\0\4wire", framing.HEADER.size + 4, sender)
    return Dispatcher(broker).serve(connection, memoryview(request(ENVELOPE, 0, 5, values)))


async def opened(broker: BrokerContext, sealed: Any, sender: Caller = SENDER) -> Any:
    answer = await answer_of(serve(broker, sealed, sender))
    assert isinstance(answer, bytes)
    return read_response(ENVELOPE, 0, answer[4:], 5)


async def test_the_client_inside_is_judged_and_not_the_broker_that_sent_it(tmp_path: Path) -> None:
    supers = {**AUTHORIZER, "super.users": "User:root;User:broker"}
    sender = replace(SENDER, session=Session(principal="User:broker", broker_id=2))
    async with running_parts(tmp_path, supers) as broker:
        for principal, code in (("User:eve", ErrorCode.topic_authorization_failed), ("User:root", ErrorCode.none)):
            response = await opened(broker, wrapped(client(principal)), sender)
            assert response.error_code is ErrorCode.none
            inner = read_response(CREATE_TOPICS, 7, response.response_data, 77)
            assert inner.topics[0].error_code is code
        assert set(broker.metadata.image.topics) == {"t"}


async def test_a_broker_without_cluster_action_opens_none(tmp_path: Path) -> None:
    async with running_parts(tmp_path, {**AUTHORIZER, "super.users": "User:root"}) as broker:
        response = await opened(broker, wrapped(client("User:root")))
        assert response.error_code is ErrorCode.cluster_authorization_failed
        assert not broker.metadata.image.topics


async def test_who_has_not_proved_to_be_a_broker_is_disconnected(tmp_path: Path) -> None:
    async with running_parts(tmp_path, {**AUTHORIZER, "super.users": "User:root"}) as broker:
        answer = await answer_of(serve(broker, wrapped(client("User:root")), client("User:root")))
        assert answer is HANG_UP
        assert not broker.metadata.image.topics


async def test_only_what_is_forwarded_may_be_inside(tmp_path: Path) -> None:
    async with running_parts(tmp_path) as broker:
        names = {"topics": [], "allow_auto_topic_creation": False}
        response = await opened(broker, wrapped(client("User:a"), METADATA, 12, names))
        assert response.error_code is ErrorCode.invalid_request
        nested = replace(wrapped(client("User:a")), request_data=request(ENVELOPE, 0, 1, EMPTY))
        assert (await opened(broker, nested)).error_code is ErrorCode.invalid_request


async def test_a_broker_that_is_not_the_controller_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with running_parts(tmp_path) as broker:
        monkeypatch.setattr(type(broker.controller), "is_active", False)
        assert (await opened(broker, wrapped(client("User:a")))).error_code is ErrorCode.not_controller
        monkeypatch.undo()
