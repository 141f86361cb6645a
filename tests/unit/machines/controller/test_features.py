"""Levels of features: where they begin, and which changes are taken."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Literal

import pytest

from barnabas.machines.controller.requests import LevelChange, Registered, UpdateFeatures
from barnabas.model.errors import InvalidUpdateVersion
from tests.support.controllers import brokers, controller, run

if TYPE_CHECKING:
    from collections.abc import Mapping

    from barnabas.machines.controller.machine import ControllerMachine

    Ranges = Mapping[str, tuple[int, int]]

GROUP, TRANSACTION = "group.version", "transaction.version"
BOTH: Ranges = {GROUP: (0, 1), TRANSACTION: (0, 2)}


def register(machine: ControllerMachine, **features: Ranges) -> dict[str, int]:
    """These brokers, by their numbers, are all that there are now; gives the levels of features."""
    known = brokers(*(int(name[1:]) for name in features))
    run(machine, Registered({id: replace(known[id], features=features[f"b{id}"]) for id in known}))
    return dict(machine.image.features)


def change(
    machine: ControllerMachine,
    updates: Mapping[str, int],
    direction: Literal["upgrade", "downgrade"] | None,
    *,
    validate_only: bool = False,
) -> list[str]:
    """What was refused, and why."""
    wanted = {name: LevelChange(level, direction) for name, level in updates.items()}
    answers = run(machine, UpdateFeatures(wanted, validate_only))
    assert all(answer is None or isinstance(answer, InvalidUpdateVersion) for answer in answers.values())
    return [str(answer) for answer in answers.values() if answer is not None]


@pytest.fixture
def machine() -> ControllerMachine:
    made = controller()
    assert register(made, b1=BOTH, b2=BOTH) == {GROUP: 1, TRANSACTION: 2}
    return made


def test_a_feature_begins_with_what_every_broker_has() -> None:
    made = controller()
    assert register(made, b1={GROUP: (0, 1)}) == {GROUP: 1}
    assert register(made, b1=BOTH, b2={GROUP: (0, 3)}) == {GROUP: 1}
    epoch = made.image.features_epoch
    assert register(made, b1=BOTH, b2={GROUP: (0, 3), TRANSACTION: (0, 1)}) == {GROUP: 1, TRANSACTION: 1}
    assert made.image.features_epoch == epoch + 1


def test_levels_stay_when_brokers_come_and_go(machine: ControllerMachine) -> None:
    assert register(machine, b2={GROUP: (0, 3)}) == {GROUP: 1, TRANSACTION: 2}
    assert register(machine, b1={}) == {GROUP: 1, TRANSACTION: 2}
    assert change(machine, {GROUP: 0}, "downgrade", validate_only=True) != []
    assert register(machine, b1=BOTH) == {GROUP: 1, TRANSACTION: 2}
    assert change(machine, {GROUP: 0}, "downgrade") == []
    assert register(machine, b1=BOTH, b2=BOTH) == {GROUP: 0, TRANSACTION: 2}


def test_levels_go_down_and_up(machine: ControllerMachine) -> None:
    epoch = machine.image.features_epoch
    assert change(machine, {GROUP: 0, TRANSACTION: 1}, "downgrade") == []
    assert machine.image.features == {GROUP: 0, TRANSACTION: 1}
    assert change(machine, {GROUP: 1}, "upgrade") == []
    assert machine.image.features == {GROUP: 1, TRANSACTION: 1}
    assert machine.image.features_epoch == epoch + 2
    assert change(machine, {GROUP: 1}, "upgrade") == []
    assert machine.image.features_epoch == epoch + 2


def test_nothing_changes_when_it_is_only_asked(machine: ControllerMachine) -> None:
    assert change(machine, {GROUP: 0}, "downgrade", validate_only=True) == []
    assert machine.image.features == {GROUP: 1, TRANSACTION: 2}


@pytest.mark.parametrize(
    ("updates", "direction", "reason"),
    [
        ({GROUP: 2}, "upgrade", "Broker 1 only supports versions 0-1"),
        ({"no.such": 1}, "upgrade", "Broker 1 does not support this feature."),
        ({GROUP: -1}, "downgrade", "A feature version cannot be less than 0."),
        ({TRANSACTION: 1}, "upgrade", "Can't downgrade the version of this feature without setting"),
        ({GROUP: 1}, None, "The controller does not support the given upgrade type."),
    ],
)
def test_levels_that_cannot_be(
    machine: ControllerMachine, updates: dict[str, int], direction: Literal["upgrade", "downgrade"], reason: str
) -> None:
    ((name, level),) = updates.items()
    (refused,) = change(machine, updates, direction)
    assert refused.startswith(f"Invalid update version {level} for feature {name}. {reason}")
    assert machine.image.features == {GROUP: 1, TRANSACTION: 2}


def test_all_or_none(machine: ControllerMachine) -> None:
    (refused,) = change(machine, {TRANSACTION: 1, "no.such": 0}, "downgrade")
    assert "for feature no.such." in refused
    assert machine.image.features == {GROUP: 1, TRANSACTION: 2}


def test_a_downgrade_does_not_go_up(machine: ControllerMachine) -> None:
    change(machine, {GROUP: 0}, "downgrade")
    (refused,) = change(machine, {GROUP: 1}, "downgrade")
    assert refused.endswith("Can't downgrade to a newer version.")
    assert machine.image.features[GROUP] == 0
