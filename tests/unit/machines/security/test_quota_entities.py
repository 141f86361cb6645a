"""Whom quotas are for, what may be set, and which of them a filter means."""

from __future__ import annotations

import math

import pytest

from barnabas.machines.security.quota_entities import (
    QuotaEntity,
    as_text,
    check_value,
    entity_of,
    quota_filter,
    stored_quotas,
)
from barnabas.model.errors import ApiError, InvalidRequest, UnsupportedVersion

ALICE = QuotaEntity("alice")
ALICES_APP = QuotaEntity("alice", "app")
ALICES_OTHERS = QuotaEntity("alice", "")
ANYBODY = QuotaEntity("")
APP = QuotaEntity(client_id="app")
ADDRESS = QuotaEntity(ip="10.0.0.1")
ALL = (ALICE, ALICES_APP, ALICES_OTHERS, ANYBODY, APP, ADDRESS)


def test_an_entity_is_what_its_parts_say() -> None:
    for entity in ALL:
        assert entity_of(entity.parts) == entity


@pytest.mark.parametrize(
    ("parts", "words"),
    [
        ({}, "Invalid empty client quota entity"),
        ({"group": "g"}, "Unhandled client quota entity type: group"),
        ({"user": ""}, "Empty user not supported"),
        ({"ip": "10.0.0.1", "user": "alice"}, "Invalid quota entity combination"),
    ],
)
def test_what_is_no_entity_is_refused(parts: dict[str, str | None], words: str) -> None:
    with pytest.raises(InvalidRequest, match=words):
        entity_of(parts)


@pytest.mark.parametrize(
    ("entity", "key", "value", "words"),
    [
        (ALICE, "producer_byte_rate", 0.0, "must be greater than 0"),
        (ALICE, "producer_byte_rate", -1.0, "must be greater than 0"),
        (ALICE, "producer_byte_rate", math.nan, "must be greater than 0"),
        (ALICE, "producer_byte_rate", 1e-9, "must be greater than 0"),
        (ADDRESS, "connection_creation_rate", 1e-9, "must be greater than 0"),
        (ALICE, "producer_byte_rate", 1.5, "cannot be a fractional value"),
        (ALICE, "producer_byte_rate", 1e30, "too large for a LONG"),
        (ALICE, "request_percentage", math.inf, "must be finite"),
        (ALICE, "connection_creation_rate", 1.0, "Invalid configuration key connection_creation_rate"),
        (ADDRESS, "connection_creation_rate", 3e9, "too large for an INT"),
        (ADDRESS, "producer_byte_rate", 1.0, "Invalid configuration key producer_byte_rate"),
        (ALICE, "SCRAM-SHA-512", 1.0, "Invalid configuration key"),
    ],
)
def test_what_is_no_quota_is_refused(entity: QuotaEntity, key: str, value: float, words: str) -> None:
    with pytest.raises(InvalidRequest, match=words):
        check_value(entity, key, value)


def test_quotas_are_stored_as_kafka_does_and_read_again() -> None:
    check_value(ALICE, "producer_byte_rate", 1024.0000001)
    stored = {
        "producer_byte_rate": as_text("producer_byte_rate", 1024.0000001),
        "request_percentage": as_text("request_percentage", 12.5),
    }
    assert stored == {"producer_byte_rate": "1024", "request_percentage": "12.5"}
    others = {"SCRAM-SHA-512": "salt=...", "consumer_byte_rate": "many", "controller_mutation_rate": "-1"}
    assert stored_quotas({**stored, **others}) == {"producer_byte_rate": 1024.0, "request_percentage": 12.5}
    assert stored_quotas({"request_percentage": "inf", "consumer_byte_rate": "1.0E10"}) == {"consumer_byte_rate": 1e10}


EXACT, DEFAULT, ANY = 0, 1, 2


@pytest.mark.parametrize(
    ("components", "strict", "meant"),
    [
        ([], False, set(ALL)),
        ([], True, set()),
        ([("user", EXACT, "alice")], False, {ALICE, ALICES_APP, ALICES_OTHERS}),
        ([("user", EXACT, "alice")], True, {ALICE}),
        ([("user", EXACT, "")], False, set()),
        ([("user", DEFAULT, None)], False, {ANYBODY}),
        ([("user", ANY, None)], True, {ALICE, ANYBODY}),
        ([("user", ANY, None), ("client-id", DEFAULT, None)], True, {ALICES_OTHERS}),
        ([("client-id", ANY, None)], False, {ALICES_APP, ALICES_OTHERS, APP}),
        ([("ip", ANY, None)], True, {ADDRESS}),
    ],
)
def test_a_filter_means_what_it_says(
    components: list[tuple[str, int, str | None]], strict: bool, meant: set[QuotaEntity]
) -> None:
    wanted = quota_filter(components, strict=strict)
    assert {entity for entity in ALL if wanted.matches(entity)} == meant


@pytest.mark.parametrize(
    ("components", "error"),
    [
        ([("", ANY, None)], InvalidRequest),
        ([("group", ANY, None)], UnsupportedVersion),
        ([("user", ANY, None), ("user", ANY, None)], InvalidRequest),
        ([("user", ANY, None), ("ip", ANY, None)], InvalidRequest),
        ([("user", EXACT, None)], InvalidRequest),
        ([("user", DEFAULT, "alice")], InvalidRequest),
        ([("user", ANY, "alice")], InvalidRequest),
        ([("user", 3, None)], InvalidRequest),
    ],
)
def test_a_filter_that_means_nothing_is_refused(
    components: list[tuple[str, int, str | None]], error: type[ApiError]
) -> None:
    with pytest.raises(error):
        quota_filter(components, strict=False)
