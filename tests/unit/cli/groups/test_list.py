from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from tests.unit.cli.groups.conftest import member

if TYPE_CHECKING:
    from tests.unit.cli.conftest import Run
    from tests.unit.cli.groups.conftest import FakeGroups


@pytest.fixture(autouse=True)
def some_groups(groups: FakeGroups) -> None:
    groups.add("old")
    groups.add("new", member("a"), type_="Consumer")


def test_ids_one_per_line(run: Run) -> None:
    assert run("groups", "--list").stdout == "new\nold\n"


def test_columns_for_what_is_asked(run: Run) -> None:
    assert run("groups", "--list", "--state").stdout == (
        "GROUP                     STATE\nnew                       Stable\nold                       Empty\n"
    )
    both = run("groups", "--list", "--type", "--state").stdout
    assert both.splitlines()[1] == "new                       Consumer             Stable"


@pytest.mark.parametrize(
    ("words", "ids"),
    [
        (["--state", "stable, EMPTY"], ["new", "old"]),
        (["--state", "Empty"], ["old"]),
        (["--type", "consumer"], ["new"]),
        (["--type", "classic", "--state", "stable"], []),
    ],
)
def test_filters(run: Run, words: list[str], ids: list[str]) -> None:
    lines = run("groups", "--list", *words).stdout.splitlines()
    assert [line.split()[0] for line in lines[1:]] == ids


@pytest.mark.parametrize("words", [["--state", "sleepy"], ["--type", "share"]])
def test_states_and_types_that_there_are_not(run: Run, words: list[str]) -> None:
    result = run("groups", "--list", *words)
    assert result.exit_code == 2
    assert f"{words[0]} {words[1]} is not one of" in result.stderr


def test_json(run: Run) -> None:
    assert json.loads(run("groups", "--list", "--json").stdout) == [
        {"group": "new", "type": "Consumer", "state": "Stable"},
        {"group": "old", "type": "Classic", "state": "Empty"},
    ]


@pytest.mark.usefixtures("terminal")
def test_a_person_gets_a_table(run: Run, groups: FakeGroups) -> None:
    assert ["new", "Consumer", "Stable"] in [line.split() for line in run("groups", "--list").stdout.splitlines()]
    groups.groups.clear()
    assert run("groups", "--list").stderr == "No groups.\n"
