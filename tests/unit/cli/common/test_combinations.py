"""Rules about options that go together, and the words for breaking them."""

from __future__ import annotations

from dataclasses import dataclass

import click
import pytest

from barnabas.cli.common.combinations import Actions, at_most_one, exactly_one, needs
from barnabas.cli.common.options import Options

ACTIONS = Actions(("list", "alter"), goes_with={"value": ("alter",)}, needs={"alter": ("topic",)})


@dataclass(frozen=True, kw_only=True)
class Given(Options):
    list: bool = False
    alter: bool = False
    value: int | None = None
    topic: str | None = None
    group: tuple[str, ...] = ()


def test_one_action_is_given() -> None:
    assert ACTIONS.chosen(Given(alter=True)) == "alter"
    for given in (Given(), Given(list=True, alter=True)):
        with pytest.raises(click.UsageError, match="Give exactly one action: --list or --alter"):
            ACTIONS.check(given)


def test_options_fit_the_action() -> None:
    ACTIONS.check(Given(alter=True, topic="t", value=0))
    with pytest.raises(click.UsageError, match="--value goes with --alter, not with --list"):
        ACTIONS.check(Given(list=True, value=0))
    for topic in (None, ""):
        with pytest.raises(click.UsageError, match="--alter needs --topic"):
            ACTIONS.check(Given(alter=True, topic=topic))


def test_one_of_several() -> None:
    exactly_one(Given(value=0), "value", "topic", "group")
    for given in (Given(), Given(value=0, group=("g",))):
        with pytest.raises(click.UsageError, match="Give one of --value, --topic and --group"):
            exactly_one(given, "value", "topic", "group")
    with pytest.raises(click.UsageError, match="--alter needs exactly one of --value and --topic"):
        exactly_one(Given(), "value", "topic", action="alter")


def test_at_most_one_of_several() -> None:
    at_most_one(Given(), "value", "topic")
    with pytest.raises(click.UsageError, match="Give --value or --topic, not both"):
        at_most_one(Given(value=0, topic="t"), "value", "topic")


def test_an_option_that_needs_another() -> None:
    needs(Given(value=0, topic="t"), "value", "topic", "group")
    needs(Given(), "value", "topic")
    with pytest.raises(click.UsageError, match="--value needs --topic or --group"):
        needs(Given(value=0), "value", "topic", "group")
