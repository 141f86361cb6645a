"""ApiVersions: what is served is what Apache Kafka 4.3.0 advertises for the same APIs."""

from __future__ import annotations

import struct
from dataclasses import replace
from typing import Any

import pytest
from kio.index import load_response_schema
from kio.schema.api_versions.v4.request import ApiVersionsRequest
from kio.schema.api_versions.v4.response import SupportedFeatureKey
from kio.serial import entity_reader
from kio.static.primitive import i16

from barnabas.broker.handlers.api_versions import api_versions, unsupported_version
from barnabas.broker.serving.caller import Caller
from barnabas.broker.serving.dispatch import Dispatcher
from barnabas.broker.serving.registry import APIS
from barnabas.metadata.images.cache import MetadataCache
from barnabas.model.errors import ErrorCode, InvalidFrame
from barnabas.protocol.apis import ApiKey
from barnabas.protocol.wire import codec
from tests.support.images import ClusterOf, telling_broker

CALLER = Caller(listener="PLAINTEXT", address=("127.0.0.1", 1), client_id="test")


def ask(name: str = "a-client", version: str = "1.0.0") -> Any:
    request = ApiVersionsRequest(client_software_name=name, client_software_version=version)
    return api_versions(telling_broker(ClusterOf()), request, CALLER)


def test_produce_is_advertised_from_version_0_on_and_every_other_api_as_served() -> None:
    ranges = {entry.api_key: (entry.min_version, entry.max_version) for entry in ask().api_keys}
    assert ranges[ApiKey.PRODUCE] == (0, 13)
    assert ranges[ApiKey.FETCH] == (4, 18)
    assert ranges.keys() == {api.key for api in APIS if not api.is_internal and api.only_with is None}


def test_metrics_of_clients_are_asked_for_where_somebody_takes_them() -> None:
    broker = telling_broker(ClusterOf(), {"telemetry.otlp.endpoint": "http://localhost:4318/v1/metrics"})
    request = ApiVersionsRequest(client_software_name="a", client_software_version="1")
    keys = {entry.api_key for entry in api_versions(broker, request, CALLER).api_keys}
    assert {ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, ApiKey.PUSH_TELEMETRY} <= keys


@pytest.mark.parametrize(("name", "version"), [("-bad", "1"), ("good", "1.0-"), ("good", ""), ("a b", "1")])
def test_software_that_does_not_name_itself_properly_is_refused(name: str, version: str) -> None:
    assert ask(name, version).error_code is ErrorCode.invalid_request


def test_a_client_that_names_nothing_is_served() -> None:
    assert ask("", "").error_code is ErrorCode.none
    assert CALLER.session.software == ""


def test_what_a_client_names_is_kept_with_its_connection_and_cut() -> None:
    ask("librdkafka", "2.16.0")
    assert CALLER.session.software == "librdkafka 2.16.0"
    ask("x" * 30_000, "1")
    assert len(CALLER.session.software) == 128


@pytest.mark.parametrize("version", range(5))
def test_an_answer_is_written_once_and_told_again_with_the_number_of_each_request(version: int) -> None:
    first, other = ask(), unsupported_version()
    assert ask() is first
    frames = [codec.encode(ApiKey.API_VERSIONS, version, number, first) for number in (1, -2)]
    refused = codec.encode(ApiKey.API_VERSIONS, version, 3, other)
    frames.append(codec.encode(ApiKey.API_VERSIONS, version, 4, first))
    assert [struct.unpack_from(">i", frame, 4) for frame in frames] == [(1,), (-2,), (4,)]
    assert {(frame[:4], frame[8:]) for frame in frames} == {(frames[0][:4], frames[0][8:])}
    for frame, keys in ((frames[2], first.api_keys), (refused, other.api_keys)):
        read: Any = entity_reader(load_response_schema(ApiKey.API_VERSIONS, version))(frame, 8)[0]
        assert [entry.api_key for entry in read.api_keys] == [entry.api_key for entry in keys]
        assert struct.unpack_from(">i", frame)[0] == len(frame) - 4


def test_an_answer_is_another_one_when_features_change() -> None:
    request = ApiVersionsRequest(client_software_name="a", client_software_version="1")
    broker = telling_broker(ClusterOf())
    before = api_versions(broker, request, CALLER)
    image = broker.metadata.image
    changed = replace(image, features={**image.features, "share.version": 1}, features_epoch=image.features_epoch + 1)
    after = api_versions(telling_broker(ClusterOf(), metadata=MetadataCache(changed)), request, CALLER)
    assert after.finalized_features_epoch == before.finalized_features_epoch + 1
    assert [feature.name for feature in after.finalized_features] == list(changed.features)


@pytest.mark.parametrize(("version", "told"), [(3, ["strict"]), (4, ["strict", "optional"])])
def test_features_that_may_be_off_are_kept_from_older_clients(version: int, told: list[str]) -> None:
    features = (
        SupportedFeatureKey(name="strict", min_version=i16(1), max_version=i16(2)),
        SupportedFeatureKey(name="optional", min_version=i16(0), max_version=i16(1)),
    )
    response = unsupported_version()
    object.__setattr__(response, "supported_features", features)
    frame = codec.encode(ApiKey.API_VERSIONS, version, 1, response)
    read: Any = entity_reader(load_response_schema(ApiKey.API_VERSIONS, version))(frame, 8)[0]
    assert [feature.name for feature in read.supported_features] == told


class Client:
    """As much of a connection as the dispatcher looks at."""

    listener = "PLAINTEXT"
    address = ("127.0.0.1", 1)
    state: object = None


def test_an_unknown_version_is_answered_in_version_0_with_what_is_known() -> None:
    frame = struct.pack(">hhih", ApiKey.API_VERSIONS, 99, 42, -1)
    client: Any = Client()
    answer = Dispatcher(telling_broker(ClusterOf())).serve(client, memoryview(frame))
    assert isinstance(answer, bytes)
    assert int.from_bytes(answer[4:8], "big") == 42
    read: Any = entity_reader(load_response_schema(ApiKey.API_VERSIONS, 0))(answer, 8)[0]
    assert read.error_code is ErrorCode.unsupported_version
    assert [(entry.api_key, entry.min_version, entry.max_version) for entry in read.api_keys] == [(18, 0, 4)]


@pytest.mark.parametrize(("key", "version"), [(999, 0), (-1, 0), (ApiKey.METADATA, 99), (ApiKey.PRODUCE, 2)])
def test_what_is_not_served_ends_the_connection(key: int, version: int) -> None:
    client: Any = Client()
    with pytest.raises(InvalidFrame, match="ApiVersions lists what is"):
        Dispatcher(telling_broker(ClusterOf())).serve(client, memoryview(struct.pack(">hhih", key, version, 1, -1)))
