from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from barnabas.cli.groups.describe_offsets import total_lag
from barnabas.clients.admin.groups import Committed
from barnabas.model.ids import TopicPartition
from tests.unit.cli.groups.conftest import member

if TYPE_CHECKING:
    from tests.unit.cli.conftest import Run
    from tests.unit.cli.groups.conftest import FakeGroups


@pytest.fixture(autouse=True)
def a_group(groups: FakeGroups) -> None:
    for partition in range(4):
        groups.add_log("orders", partition, 0, 100)
    groups.add("g", member("few", ("orders", 2)), member("many", ("orders", 0), ("orders", 1)))
    groups.commit("g", {TopicPartition("orders", partition): 90 + partition for partition in (0, 2, 3)})


def test_offsets_by_member_and_then_what_nobody_has(run: Run) -> None:
    result = run("groups", "--describe", "--group", "g")
    assert (result.exit_code, result.stderr) == (0, "")
    assert [line.split() for line in result.stdout.splitlines()] == [
        [],
        ["GROUP", "TOPIC", "PARTITION", "CURRENT-OFFSET", "LOG-END-OFFSET", "LAG", "CONSUMER-ID", "HOST", "CLIENT-ID"],
        ["g", "orders", "0", "90", "100", "10", "many-id", "/10.0.0.1", "many"],
        ["g", "orders", "1", "-", "100", "-", "many-id", "/10.0.0.1", "many"],
        ["g", "orders", "2", "92", "100", "8", "few-id", "/10.0.0.1", "few"],
        ["g", "orders", "3", "93", "100", "7", "-", "-", "-"],
    ]


def test_columns_stand_where_kafka_has_them(run: Run) -> None:
    header = run("groups", "--describe", "--group", "g").stdout.splitlines()[1]
    assert header == (
        "GROUP           TOPIC           PARTITION  CURRENT-OFFSET  LOG-END-OFFSET  LAG             "
        "CONSUMER-ID     HOST            CLIENT-ID"
    )


def test_verbose_shows_leader_epochs(run: Run, groups: FakeGroups) -> None:
    groups.offsets_of["g"][TopicPartition("orders", 2)] = Committed(92, leader_epoch=7)
    rows = [line.split() for line in run("groups", "--describe", "--group", "g", "--verbose").stdout.splitlines()]
    assert rows[1][3] == "LEADER-EPOCH"
    assert [row[3] for row in rows[2:]] == ["-", "-", "7", "-"]


def test_a_partition_that_is_gone_or_has_no_leader_has_no_lag(run: Run, groups: FakeGroups) -> None:
    groups.commit("g", {TopicPartition("gone", 0): 5})
    groups.leaderless.add(TopicPartition("orders", 0))
    rows = [line.split() for line in run("groups", "--describe", "--group", "g").stdout.splitlines()[2:]]
    assert [row[1:6] for row in rows if row[1] == "gone" or row[2] == "0"] == [
        ["orders", "0", "90", "-", "-"],
        ["gone", "0", "5", "-", "-"],
    ]


def test_topics_that_may_not_be_described_hide_no_others(run: Run, groups: FakeGroups) -> None:
    groups.add("h", member("barred", ("secret", 0), ("hidden", 0)))
    groups.forbidden = {"secret", "hidden"}
    result = run("groups", "--describe", "--group", "g", "--group", "h")
    assert result.exit_code == 0
    rows = [line.split()[:6] for line in result.stdout.splitlines()]
    assert ["g", "orders", "0", "90", "100", "10"] in rows
    assert ["h", "secret", "0", "-", "-", "-"] in rows
    (told,) = result.stderr.splitlines()
    assert told.startswith(
        "Log ends and lags of hidden, secret are left out: no permission to describe topic hidden (Describe on topic "
        "hidden). No rule allows it"
    )


@pytest.mark.parametrize(
    ("state", "said"),
    [
        ("Empty", "Consumer group 'h' has no active members.\n"),
        ("PreparingRebalance", "Warning: Consumer group 'h' is rebalancing.\n"),
        ("Reconciling", "Warning: Consumer group 'h' is rebalancing.\n"),
        ("Stable", ""),
    ],
)
def test_what_to_know_first_is_not_part_of_the_result(run: Run, groups: FakeGroups, state: str, said: str) -> None:
    groups.add("h", state=state)
    result = run("groups", "--describe", "--group", "h")
    assert (result.exit_code, result.stdout, result.stderr) == (0, "", said)


def test_a_missing_group_does_not_hide_the_others(run: Run) -> None:
    result = run("groups", "--describe", "--group", "nix", "--group", "g")
    assert result.exit_code == 1
    assert "orders" in result.stdout
    assert result.stderr == (
        "Error: Consumer group 'nix' does not exist; `barnabas groups --list` shows those that do\n"
    )


def test_members(run: Run) -> None:
    assert [line.split() for line in run("groups", "--describe", "--group", "g", "--members").stdout.splitlines()] == [
        [],
        ["GROUP", "CONSUMER-ID", "HOST", "CLIENT-ID", "#PARTITIONS"],
        ["g", "few-id", "/10.0.0.1", "few", "1"],
        ["g", "many-id", "/10.0.0.1", "many", "2"],
    ]


def test_members_with_instance_ids_and_epochs(run: Run, groups: FakeGroups) -> None:
    here = (("orders", 1), ("orders", 0), ("a", 0))
    there = (TopicPartition("orders", 0),)
    new = member("new", *here, instance_id="i1", epoch=3, target_assignment=there, upgraded=True)
    groups.add("mixed", new, member("old", epoch=2, upgraded=False), type_="Consumer")
    lines = run("groups", "--describe", "--group", "mixed", "--members", "--verbose").stdout.splitlines()
    assert [line.split() for line in lines[1:]] == [
        [
            "GROUP",
            "CONSUMER-ID",
            "GROUP-INSTANCE-ID",
            "HOST",
            "CLIENT-ID",
            "#PARTITIONS",
            "CURRENT-EPOCH",
            "CURRENT-ASSIGNMENT",
            "TARGET-EPOCH",
            "TARGET-ASSIGNMENT",
            "UPGRADED",
        ],
        ["mixed", "new-id", "i1", "/10.0.0.1", "new", "3", "3", "a:0;orders:0,1", "3", "orders:0", "true"],
        ["mixed", "old-id", "/10.0.0.1", "old", "0", "2", "-", "3", "-", "false"],
    ]


def test_states(run: Run, groups: FakeGroups) -> None:
    groups.add("n", member("a"), type_="Consumer")
    lines = run("groups", "--describe", "--all-groups", "--state", "--verbose").stdout.splitlines()
    titles = (
        "GROUP           COORDINATOR (ID)          ASSIGNMENT-STRATEGY  STATE                GROUP-EPOCH     "
        "TARGET-ASSIGNMENT-EPOCH   #MEMBERS"
    )
    assert [lines[1], lines[4]] == [titles, titles]
    assert lines[2].split() == ["g", "localhost:9092", "(1)", "range", "Stable", "-", "-", "2"]
    assert lines[5].split() == ["n", "localhost:9092", "(1)", "uniform", "Stable", "4", "3", "1"]


def test_json(run: Run) -> None:
    (offsets,) = json.loads(run("groups", "--describe", "--group", "g", "--json").stdout)
    assert (offsets["group"], offsets["state"], offsets["coordinator"]["id"]) == ("g", "Stable", 1)
    assert [row["lag"] for row in offsets["partitions"]] == [10, None, 8, 7]
    (members,) = json.loads(run("groups", "--describe", "--group", "g", "--members", "--json").stdout)
    assert members["members"][0]["assignment"] == [["orders", 2]]
    (state,) = json.loads(run("groups", "--describe", "--group", "g", "--state", "--json").stdout)
    assert state["memberCount"] == 2


@pytest.mark.usefixtures("terminal")
@pytest.mark.parametrize("words", [(), ("--members", "--verbose"), ("--state",)])
def test_a_person_gets_tables(run: Run, groups: FakeGroups, words: tuple[str, ...]) -> None:
    groups.add("nothing")
    shown = run("groups", "--describe", "--all-groups", *words)
    assert shown.exit_code == 0
    assert "Stable" in shown.stdout
    assert "GROUP" not in shown.stdout


@pytest.mark.usefixtures("terminal")
def test_a_person_is_told_the_sum(run: Run) -> None:
    assert "Lag of the 3 partitions with a committed offset: 25" in run("groups", "--describe", "--group", "g").stdout


@pytest.mark.parametrize(
    ("lags", "told"),
    [
        ([1, 2], "Lag of all partitions: 3"),
        ([0, None, 4], "Lag of the 2 partitions with a committed offset: 4"),
        ([None, None], "Lag: not known, as nothing is committed yet"),
    ],
)
def test_a_lag_that_nobody_knows_is_not_taken_for_none(lags: list[int | None], told: str) -> None:
    assert total_lag(lags) == told
