"""Every API has its two lines, in the registry and in the table of formats, and what they say is so."""

from __future__ import annotations

import inspect
from collections import Counter
from dataclasses import fields
from importlib import import_module
from types import NoneType
from typing import get_args, get_origin

import pytest

from barnabas.broker.permissions.needs import on_cluster
from barnabas.broker.serving.registry import APIS, Api, Callers
from barnabas.machines.security.acls import Operation
from barnabas.protocol.apis import ApiKey
from barnabas.protocol.wire import codec
from barnabas.protocol.wire.api_table import API_FORMATS, NEVER, AtTop, Each, load

EVERY_API = pytest.mark.parametrize("api", APIS, ids=lambda api: api.key.name)


def test_every_api_has_one_line_in_either_table() -> None:
    assert Counter(api.key for api in APIS) == Counter(ApiKey)
    assert API_FORMATS.keys() == set(ApiKey)


@EVERY_API
def test_what_a_line_names_is_there(api: Api) -> None:
    form = api.format
    for name in filter(None, (form.unpack, form.pack, form.up, form.down, form.request, form.response)):
        assert callable(load(name))


@EVERY_API
def test_a_handler_takes_what_its_line_says(api: Api) -> None:
    names = list(inspect.signature(api.load()).parameters)
    if api.raw:
        assert names[2:] == ["version", "correlation_id", "frame", "body"]
    else:
        assert len(names) == (4 if api.takes_version else 3)


@EVERY_API
def test_the_first_flexible_version_is_that_of_the_schemas_and_of_what_is_packed_by_hand(api: Api) -> None:
    since = api.format.flexible_from
    for version in range(api.oldest, api.newest + 1):
        assert codec.request_class(api.key, version).__flexible__ is (version >= since)  # type: ignore[attr-defined]  # every message class has it
    for name in filter(None, (api.format.unpack, api.format.pack)):
        module = import_module(f"barnabas.protocol.{name.partition(':')[0]}")
        assert getattr(module, "FLEXIBLE", 0) == since
    assert since <= api.newest or since == NEVER


@EVERY_API
def test_a_line_says_where_its_responses_have_their_error(api: Api) -> None:
    errors = api.format.errors
    if errors is None:
        assert api.raw
        return
    response = codec.handled_response_class(api.key, api.newest)
    if isinstance(errors, AtTop):
        assert {"error_code", *errors.values} <= names_of(response)
        errors = None
    for each in filter(None, (errors, api.format.errors_before and api.format.errors_before[1])):
        assert_has_place(each, codec.handled_request_class(api.key, api.newest), response)


def assert_has_place(each: Each, request: type, response: type) -> None:
    asked = element_of(element_of(request, each.within) if each.within else request, each.request_field)
    told = element_of(response, each.response_field)
    assert {each.name, *each.values} - {""} <= names_of(told)
    if each.inside is None:
        assert names_of(told) & {"error_code", "partition_error_code"}
    else:
        assert_has_place(each.inside, asked, told)


def names_of(message_class: type) -> set[str]:
    return {field.name for field in fields(message_class)}


def element_of(message_class: type, name: str) -> type:
    (kind,) = (field.type for field in fields(message_class) if field.name == name)
    if isinstance(kind, str):  # a field of kio's class, in a subclass whose annotations are postponed
        raise TypeError(f"the type of {message_class.__name__}.{name} is not known")
    if get_origin(kind) is not tuple:
        (kind,) = (arm for arm in get_args(kind) if arm is not NoneType)
    element: type = get_args(kind)[0]
    return element


def test_only_brokers_may_ask_for_what_clients_are_not_told_of() -> None:
    own = {api.key for api in APIS if api.is_internal}
    declared = {key for key, form in API_FORMATS.items() if form.inter_broker}
    assert own == declared | {ApiKey.ALTER_PARTITION, ApiKey.ENVELOPE}
    assert {api.key for api in APIS if api.callers is Callers.UNPROVED_BROKERS} == {
        ApiKey.BROKER_HELLO,
        ApiKey.BROKER_PROOF,
    }


OPEN_TO_ALL_WITHOUT_AUTHORIZER = {ApiKey.READ_SHARE_GROUP_STATE, ApiKey.READ_SHARE_GROUP_STATE_SUMMARY}
"""They only look there (`handlers/share_state`)."""


def test_who_acts_for_the_cluster_has_proved_to_be_a_broker_or_an_authorizer_lets_it() -> None:
    acting = {api for api in APIS if api.needs == on_cluster(Operation.CLUSTER_ACTION)}
    assert {api.key for api in acting if api.callers is Callers.ANYBODY} == OPEN_TO_ALL_WITHOUT_AUTHORIZER
    assert {api for api in APIS if api.callers is Callers.TRUSTED} <= acting
    assert not [api for api in APIS if api.callers is Callers.TRUSTED and (api.raw or api.forwarded)]


def test_what_is_forwarded_is_decoded_first() -> None:
    assert not [api for api in APIS if api.forwarded and (api.raw or api.is_internal)]


NEEDS_NOTHING = {
    ApiKey.API_VERSIONS,
    ApiKey.BROKER_HELLO,
    ApiKey.BROKER_PROOF,
    ApiKey.SASL_HANDSHAKE,
    ApiKey.SASL_AUTHENTICATE,
    ApiKey.RENEW_DELEGATION_TOKEN,
    ApiKey.EXPIRE_DELEGATION_TOKEN,
    ApiKey.GET_TELEMETRY_SUBSCRIPTIONS,
    ApiKey.PUSH_TELEMETRY,
}
"""What a client must be able to ask before anything is known of it, its own tokens, and its own metrics."""
ASK_THEMSELVES = {
    ApiKey.PRODUCE,
    ApiKey.FETCH,
    ApiKey.METADATA,
    ApiKey.DESCRIBE_TOPIC_PARTITIONS,
    ApiKey.CREATE_DELEGATION_TOKEN,
    ApiKey.DESCRIBE_DELEGATION_TOKEN,
}


@pytest.mark.parametrize("api", APIS, ids=lambda api: api.key.name)
def test_every_line_says_which_permission_its_api_needs(api: Api) -> None:
    assert api.needs.is_nothing == (api.key in NEEDS_NOTHING)
    assert api.needs.in_handler == (api.key in ASK_THEMSELVES)
    assert (api.needs.load() is None) == (api.key in NEEDS_NOTHING | ASK_THEMSELVES)
    if api.is_internal and api.key not in NEEDS_NOTHING:
        assert api.needs == on_cluster(Operation.CLUSTER_ACTION)
