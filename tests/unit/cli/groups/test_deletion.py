from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from barnabas.model.ids import TopicPartition
from tests.unit.cli.groups.conftest import member

if TYPE_CHECKING:
    from tests.unit.cli.conftest import Run
    from tests.unit.cli.groups.conftest import FakeGroups


@pytest.fixture(autouse=True)
def some_groups(groups: FakeGroups) -> None:
    groups.add_log("orders", 0, 0, 9)
    groups.add_log("orders", 1, 0, 9)
    groups.add("busy", member("a", ("orders", 0)))
    for group in ("a", "b", "busy"):
        groups.commit(group, {TopicPartition("orders", 0): 5, TopicPartition("orders", 1): 6})


class TestGroups:
    def test_says_what_was_deleted(self, run: Run, groups: FakeGroups) -> None:
        result = run("groups", "--delete", "--group", "a", "--group", "b")
        assert (result.exit_code, result.stderr) == (0, "")
        assert result.stdout == "Deletion of requested consumer groups ('a', 'b') was successful.\n"
        assert list(groups.groups) == ["busy"]

    def test_deletes_what_it_can(self, run: Run, groups: FakeGroups) -> None:
        result = run("groups", "--delete", "--all-groups")
        assert (result.exit_code, list(groups.groups)) == (1, ["busy"])
        assert result.stdout == "These consumer groups were deleted successfully: 'a', 'b'\n"
        assert result.stderr == (
            "Error: Deletion of some consumer groups failed: group 'busy': the group has active members; "
            "stop its consumers first.\n"
        )

    def test_a_group_that_is_not_there(self, run: Run) -> None:
        result = run("groups", "--delete", "--group", "nix")
        assert (result.exit_code, result.stdout) == (1, "")
        assert "group 'nix': there is no such group; `barnabas groups --list` shows" in result.stderr

    def test_json(self, run: Run) -> None:
        result = run("groups", "--delete", "--group", "a", "--group", "busy", "--json")
        assert result.exit_code == 1
        assert json.loads(result.stdout) == {"deleted": ["a"], "refused": {"busy": "the group has active members"}}


class TestOffsets:
    def test_of_a_topic(self, run: Run, groups: FakeGroups) -> None:
        result = run("groups", "--delete-offsets", "--group", "a", "--topic", "orders")
        assert (result.exit_code, result.stderr) == (0, "")
        assert result.stdout == (
            "Request succeeded for deleting offsets from group a.\n"
            "\n"
            "TOPIC           PARTITION  STATUS\n"
            "orders          0          Successful\n"
            "orders          1          Successful\n"
        )
        assert groups.offsets_of["a"] == {}

    def test_of_a_partition(self, run: Run, groups: FakeGroups) -> None:
        assert run("groups", "--delete-offsets", "--group", "a", "--topic", "orders:1").exit_code == 0
        assert list(groups.offsets_of["a"]) == [TopicPartition("orders", 0)]

    def test_what_is_in_use_stays(self, run: Run, groups: FakeGroups) -> None:
        result = run("groups", "--delete-offsets", "--group", "busy", "--topic", "orders")
        assert result.exit_code == 1
        assert "orders          0          Error: a member is subscribed\n" in result.stdout
        assert "stop its consumers first" in result.stderr
        assert list(groups.offsets_of["busy"]) == [TopicPartition("orders", 0)]

    def test_of_a_group_that_is_not_there(self, run: Run) -> None:
        result = run("groups", "--delete-offsets", "--group", "nix", "--topic", "orders")
        assert (result.exit_code, result.stdout) == (1, "")
        assert "group nix: there is no such group" in result.stderr

    def test_json(self, run: Run) -> None:
        result = run("groups", "--delete-offsets", "--group", "a", "--topic", "orders:0", "--json")
        assert json.loads(result.stdout) == {
            "group": "a",
            "partitions": [{"topic": "orders", "partition": 0, "error": None}],
        }

    @pytest.mark.usefixtures("terminal")
    def test_a_person_gets_a_table(self, run: Run) -> None:
        shown = run("groups", "--delete-offsets", "--group", "a", "--topic", "orders").stdout
        assert ["orders", "1", "Successful"] in [line.split() for line in shown.splitlines()]
