"""What `Kafka` does before it needs a broker."""

from __future__ import annotations

import pytest

from barnabas import testing
from barnabas.testing import Broker, Kafka


def test_names_are_kafkas_and_say_whose_they_are() -> None:
    kafka = Kafka(Broker(), "test_orders[tea & coffee]")
    assert kafka.name("orders").startswith("test_orders-tea-coffee.")
    assert kafka.name("orders").endswith(".orders")
    assert kafka.name("orders") == kafka.name("orders")


def test_names_are_short_enough() -> None:
    assert len(Kafka(Broker(), "x" * 300).name("orders")) < 100


def test_no_two_tests_share_names() -> None:
    assert len({Kafka(Broker(), "same").prefix for _ in range(50)}) == 50


def test_everything_public_is_there() -> None:
    for name in testing.__all__:
        assert getattr(testing, name).__name__ == name
    assert dir(testing) == testing.__all__
    with pytest.raises(AttributeError, match="nothing"):
        _ = testing.nothing
