"""What the dispatcher refuses, and what it hands on to the controller."""

from __future__ import annotations

import asyncio
import gc
import ssl
import threading
import warnings
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any
from uuid import UUID

import pytest

from barnabas.broker.handlers.envelope import unwrap
from barnabas.broker.replication.leader_partition import LeaderPartition
from barnabas.broker.serving.caller import Caller, Session
from barnabas.broker.serving.dispatch import LARGE_FRAME, ROUTE, Dispatcher
from barnabas.broker.serving.known_clients import KnownClient
from barnabas.broker.serving.registry import APIS, BY_KEY, Api, Callers
from barnabas.model.errors import ErrorCode, InvalidFrame, NotController
from barnabas.net.reply import HANG_UP, Parked
from barnabas.protocol.wire import framing
from tests.support.certificates import Authority
from tests.support.images import ClusterOf, telling_broker
from tests.support.parts import answer_of, make_topic, running_parts
from tests.support.served_connection import served_connection
from tests.support.wire import read_response, request

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from kio.schema.envelope.v0.request import EnvelopeRequest

    from barnabas.broker.context import BrokerContext

APART = {
    "listeners": "PLAINTEXT://:9092,INTERNAL://:9093",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,INTERNAL:PLAINTEXT",
    "inter.broker.listener.name": "INTERNAL",
}
DELETE_RECORDS, ALTER_PARTITION, INCREMENTAL_ALTER_CONFIGS, CREATE_PARTITIONS = 21, 56, 44, 37
UPDATE_FEATURES = 57
NO_CHANGES = {"broker_id": 1, "topics": []}
ONE_TOPIC = {"topics": [{"name": "t", "count": 2}], "validate_only": False}


class Link:
    """A controller elsewhere; `answer` is its response, from the correlation id on."""

    def __init__(self, answer: bytes | None = b"answer") -> None:
        self.forwarded: list[EnvelopeRequest] = []
        self._answer = answer

    async def forward(self, envelope: EnvelopeRequest) -> bytes | None:
        self.forwarded.append(envelope)
        if self._answer is None:
            raise NotController("nobody is the controller")
        return self._answer


class Loaded(Dispatcher):
    """One that has served every API before."""

    def _serve_first(self, connection: Any, frame: memoryview) -> Any:
        key, version, *_ = framing.HEADER.unpack_from(frame)
        self._routes[ROUTE.unpack_from(frame)[0]] = self._make_route(BY_KEY[key], version)
        return self.serve(connection, frame)


def out_of_office(link: Link, properties: Mapping[str, str] | None = None) -> BrokerContext:
    return telling_broker(ClusterOf(), properties, controller=SimpleNamespace(is_active=False), controller_link=link)


def test_a_client_is_known_by_its_certificate(tmp_path: Path) -> None:
    issued = Authority().issue("client", common_name="alice")
    keystore = issued.write(tmp_path / "broker.pem")
    tls = {
        "listeners": "PLAINTEXT://:9092,SSL://:9093",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(keystore),
        "ssl.principal.mapping.rules": "RULE:^CN=(alice),.*$/$1/U",
    }
    dispatcher = Loaded(telling_broker(ClusterOf(), tls))
    one = served_connection("SSL")
    one.certificate = ssl.PEM_cert_to_DER_cert(issued.certificate)
    dispatcher.serve(one, memoryview(request(18, 0, 1, {})))
    assert one.state.caller.principal == "User:ALICE"
    other = served_connection("SSL")
    dispatcher.serve(other, memoryview(request(18, 0, 1, {})))
    assert other.state.caller.principal == "User:ANONYMOUS"
    stranger = served_connection("SSL")
    stranger.certificate = ssl.PEM_cert_to_DER_cert(Authority().issue("x", common_name="bob").certificate)
    with pytest.raises(InvalidFrame, match="names no principal"):
        dispatcher.serve(stranger, memoryview(request(18, 0, 1, {})))


def proved(one: Any, broker_id: int, client_id: bytes = b"wire") -> Any:
    """A connection of another broker, which has proved that it is one."""
    raw = len(client_id).to_bytes(2, "big") + client_id
    caller = Caller(
        listener=one.listener, address=one.address, client_id=client_id.decode(), session=Session(broker_id=broker_id)
    )
    one.state = KnownClient(raw, framing.HEADER.size + len(client_id), caller)
    return one


def serve(broker: BrokerContext, frame: bytes, listener: str = "PLAINTEXT") -> Any:
    return Loaded(broker).serve(served_connection(listener), memoryview(frame))


async def _refuse(_: object) -> None:
    raise NotController("not here")


async def resolved(parked: Any) -> bytes:
    assert isinstance(parked, Parked)
    done = asyncio.Event()
    parked.notify = done.set
    if not parked.resolved:
        await asyncio.wait_for(done.wait(), 30)
    assert isinstance(parked.answer, bytes)
    return parked.answer


@pytest.mark.parametrize("listener", ["PLAINTEXT", "INTERNAL"])
def test_what_brokers_ask_is_refused_to_anybody_else(listener: str) -> None:
    broker = out_of_office(Link(), APART)
    with pytest.raises(InvalidFrame, match="for brokers of this cluster"):
        serve(broker, request(ALTER_PARTITION, 3, 1, NO_CHANGES), listener)


@pytest.mark.parametrize(
    ("broker_id", "error"), [(1, ErrorCode.not_controller), (2, ErrorCode.cluster_authorization_failed)]
)
async def test_who_has_proved_to_be_a_broker_may_ask_it_and_speaks_for_itself(broker_id: int, error: ErrorCode) -> None:
    broker = telling_broker(ClusterOf(), controller=SimpleNamespace(is_active=False, decide=_refuse))
    dispatcher, proved_one = Loaded(broker), proved(served_connection(), broker_id)
    frame = memoryview(request(ALTER_PARTITION, 3, 1, NO_CHANGES))
    answer = read_response(ALTER_PARTITION, 3, (await resolved(dispatcher.serve(proved_one, frame)))[4:], 1)
    assert answer.error_code is error


@pytest.mark.parametrize("padding", [0, LARGE_FRAME], ids=["small", "large"])
@pytest.mark.parametrize("api", [api for api in APIS if api.callers is Callers.TRUSTED], ids=lambda api: api.key.name)
async def test_who_acts_for_the_cluster_is_a_broker_where_no_authorizer_decides(
    tmp_path: Path, api: Api, padding: int
) -> None:
    topics = [{"topic_id": UUID(int=99), "partitions": [{"partition": 0}]}]
    frame = memoryview(request(api.key, api.newest, 1, {"group_id": "g" * (padding + 1), "topics": topics}))
    async with running_parts(tmp_path) as broker:
        dispatcher = Dispatcher(broker)
        codes = []
        for connection in (served_connection(), proved(served_connection(), 2)):
            answer = await answer_of(dispatcher.serve(connection, frame))
            assert isinstance(answer, bytes)
            [topic] = read_response(api.key, api.newest, answer[4:], 1).results
            codes.append(topic.partitions[0].error_code)
        await dispatcher.finish(30)
    assert codes == [ErrorCode.cluster_authorization_failed, ErrorCode.coordinator_not_available]


async def test_who_somebody_is_belongs_to_the_connection_and_not_to_the_client_id() -> None:
    broker = telling_broker(ClusterOf(), controller=SimpleNamespace(is_active=True, decide=_refuse))
    other = request(ALTER_PARTITION, 3, 1, NO_CHANGES).replace(b"\0\x04wire", b"\0\x04else")
    one = proved(served_connection(), 1)
    await resolved(Loaded(broker).serve(one, memoryview(other)))
    assert (one.state.caller.client_id, one.state.caller.broker_id) == ("else", 1)


async def test_what_only_the_controller_can_answer_is_forwarded_in_an_envelope_with_the_clients_name() -> None:
    broker = out_of_office(link := Link(b"what it says"))
    frame = request(CREATE_PARTITIONS, 3, 77, ONE_TOPIC)
    answer = await resolved(serve(broker, frame))
    assert answer[4:] == b"what it says"
    assert int.from_bytes(answer[:4], "big") == len(answer) - 4
    (sealed,) = link.forwarded
    assert sealed.request_data == frame
    forwarded = unwrap(sealed, Caller(listener="L", address=("10.0.0.9", 1), client_id=None))
    assert forwarded.caller.principal == "User:ANONYMOUS"
    assert forwarded.caller.address[0] == "127.0.0.1"


async def test_the_client_is_told_when_nobody_is_the_controller() -> None:
    answer = await resolved(serve(out_of_office(Link(None)), request(CREATE_PARTITIONS, 3, 1, ONE_TOPIC)))
    (result,) = read_response(CREATE_PARTITIONS, 3, answer[4:], 1).results
    assert (result.name, result.error_code) == ("t", ErrorCode.not_controller)


class Here(Link):
    """The controller is this broker by the time it is asked."""

    async def forward(self, envelope: EnvelopeRequest) -> bytes | None:
        return None


async def test_who_becomes_the_controller_meanwhile_answers_itself() -> None:
    itself = SimpleNamespace(is_active=False, decide=_refuse)
    broker = telling_broker(ClusterOf(), controller=itself, controller_link=Here())
    frame = request(UPDATE_FEATURES, 2, 7, {"feature_updates": [], "validate_only": True})
    answer = read_response(UPDATE_FEATURES, 2, (await resolved(serve(broker, frame)))[4:], 7)
    assert answer.error_code is ErrorCode.not_controller


async def _fail(*_: object, **__: object) -> None:
    raise RuntimeError("a mistake")


@pytest.mark.parametrize(
    ("key", "version", "values", "outcome"),
    [
        (UPDATE_FEATURES, 2, {"feature_updates": [], "validate_only": True}, "answered with UNKNOWN_SERVER_ERROR"),
        (CREATE_PARTITIONS, 3, ONE_TOPIC, "connection is closed"),
    ],
)
async def test_the_log_says_what_became_of_a_request_whose_handler_failed(
    key: int, version: int, values: dict[str, Any], outcome: str, caplog: pytest.LogCaptureFixture
) -> None:
    failing = SimpleNamespace(is_active=True, decide=_fail, create_partitions=_fail)
    broker = telling_broker(ClusterOf(), controller=failing)
    answer = await answer_of(serve(broker, request(key, version, 7, values)))
    assert (answer is HANG_UP) is (outcome == "connection is closed")
    assert [record.getMessage().endswith(f"{outcome}.") for record in caplog.records] == [True]


def test_a_request_is_handed_on_once_only() -> None:
    broker = out_of_office(link := Link())
    frame = request(CREATE_PARTITIONS, 3, 1, ONE_TOPIC).replace(b"\0\x04wire", b"\0\x12broker-2-forwarded")
    from_broker = proved(served_connection(), 2, b"broker-2-forwarded")
    assert Loaded(broker).serve(from_broker, memoryview(frame)) is HANG_UP
    assert not link.forwarded


@pytest.mark.parametrize(
    ("kind", "name", "handed_on"), [(2, "t", True), (4, "", True), (4, "1", False), (8, "1", False)]
)
async def test_a_brokers_own_settings_are_its_own_affair(kind: int, name: str, handed_on: bool) -> None:
    broker = out_of_office(link := Link())
    resources = [{"resource_type": kind, "resource_name": name, "configs": []}]
    values = {"resources": resources, "validate_only": True}
    await resolved(serve(broker, request(INCREMENTAL_ALTER_CONFIGS, 1, 1, values)))
    assert bool(link.forwarded) is handed_on


@pytest.mark.parametrize("abandoned", [True, False], ids=["whose client has gone", "when the broker stops"])
async def test_a_request_that_would_wait_for_weeks_is_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, abandoned: bool
) -> None:
    monkeypatch.setattr(LeaderPartition, "low_watermark", lambda _: -1)
    topics = [{"name": "t", "partitions": [{"partition_index": 0, "offset": 0}]}]
    frame = request(DELETE_RECORDS, 2, 1, {"topics": topics, "timeout": 2**31 - 1})
    async with running_parts(tmp_path) as broker:
        await make_topic(broker, "t")
        dispatcher = Dispatcher(broker)
        parked = dispatcher.serve(served_connection(), memoryview(frame))
        assert isinstance(parked, Parked)
        if abandoned:
            await asyncio.sleep(0)
            parked.abandon()
        async with asyncio.timeout(30):
            await dispatcher.finish(3600 if abandoned else 0)
    assert not parked.resolved
    assert ("did not finish" in caplog.text) is not abandoned


async def test_a_request_that_is_abandoned_before_it_began_leaves_no_warning(tmp_path: Path) -> None:
    topics = [{"name": "t", "partitions": [{"partition_index": 0, "offset": 0}]}]
    frame = request(DELETE_RECORDS, 2, 1, {"topics": topics, "timeout": 1000})
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        async with running_parts(tmp_path) as broker:
            dispatcher = Dispatcher(broker)
            parked = dispatcher.serve(served_connection(), memoryview(frame))
            assert isinstance(parked, Parked)
            parked.abandon()
            await dispatcher.finish(30)
        gc.collect()
    assert not [str(each.message) for each in caught if "never awaited" in str(each.message)]


async def test_what_serves_an_api_is_loaded_in_a_thread_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its modules take a tenth of a second to import."""
    threads: list[str] = []
    load = Api.load

    def watched(api: Api) -> Any:
        threads.append(threading.current_thread().name)
        return load(api)

    monkeypatch.setattr(Api, "load", watched)
    frame = request(CREATE_PARTITIONS, 3, 1, ONE_TOPIC)
    async with running_parts(tmp_path) as broker:
        dispatcher = Dispatcher(broker)
        first, second = (dispatcher.serve(served_connection(), memoryview(bytearray(frame))) for _ in range(2))
        expected = read_response(CREATE_PARTITIONS, 3, (await resolved(first))[4:], 1)
        assert read_response(CREATE_PARTITIONS, 3, (await resolved(second))[4:], 1) == expected
        assert [each.error_code for each in expected.results] == [ErrorCode.unknown_topic_or_partition]
        loaded = len(threads)
        await resolved(dispatcher.serve(served_connection(), memoryview(frame)))
        await dispatcher.finish(30)
    assert loaded == len(threads) == 2
    assert threading.current_thread().name not in threads


async def test_a_first_request_that_is_none_ends_its_connection(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    frame = request(CREATE_PARTITIONS, 3, 1, ONE_TOPIC)[:-3]
    async with running_parts(tmp_path) as broker:
        dispatcher = Dispatcher(broker)
        parked = dispatcher.serve(served_connection(), memoryview(frame))
        await dispatcher.finish(30)
        assert isinstance(parked, Parked)
        assert parked.answer is HANG_UP
    assert "Closed the connection of 127.0.0.1:1" in caplog.text
