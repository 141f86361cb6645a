"""A row in which the broker is to be the limit tells when it was not, and waits until both brokers are warm."""

from __future__ import annotations

import pytest
from bench.rows.pinned import idle_note, is_steady

COMPILING = [2461.0, 3395.0, 3590.0, 3950.0, 5966.0, 8295.0, 8361.0]
"""Kafka's rates in the turns of a row that once began to measure after the first."""


def test_a_broker_that_still_compiles_is_not_steady() -> None:
    assert not any(is_steady(COMPILING[:turns]) for turns in range(len(COMPILING) + 1))


def test_a_broker_that_gets_no_faster_is_steady() -> None:
    assert is_steady([*COMPILING, 8400.0, 8280.0, 8390.0])
    assert is_steady([700.0, 710.0, 690.0, 705.0])
    assert is_steady([700.0, 690.0, 600.0, 605.0]), "a machine that slowed down says nothing of warmth"


@pytest.mark.parametrize(
    ("busy", "client", "note"),
    [
        (0.95, 0.3, None),
        (0.95, 0.97, None),
        (0.7, 0.96, "used 70 % of its core only; the client was the limit."),
        (0.5, 0.3, "used 50 % of its core only; the client used 30 % of its own."),
    ],
)
def test_a_broker_whose_core_was_not_in_use_is_named(busy: float, client: float, note: str | None) -> None:
    turns = [{"busy": busy + off, "client": client} for off in (-0.04, 0.0, 0.04)]
    assert idle_note(turns) == note
