"""`barnabas share-groups` on groups in memory: which options go together, and what it prints."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from barnabas.cli.common import connection
from barnabas.clients.admin.share_groups import InFlight, SharePartitionOffsets
from barnabas.model.ids import TopicPartition
from tests.unit.cli.conftest import FakeCluster
from tests.unit.cli.groups.conftest import FakeGroups, member

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from barnabas.clients.admin.groups import GroupListing
    from barnabas.clients.errors import RequestRefused
    from tests.unit.cli.conftest import Run


class FakeShareGroups:
    """What `clients.admin.share_groups.ShareGroups` does, on dictionaries."""

    def __init__(self, groups: FakeGroups) -> None:
        self.groups = groups
        self.states: dict[str, dict[TopicPartition, SharePartitionOffsets | None]] = {}
        self.flying: dict[str, dict[TopicPartition, list[InFlight]]] = {}
        self.describe = groups.describe
        self.delete = groups.delete

    def listing(self, states: Iterable[str] = ()) -> list[GroupListing]:
        return self.groups.listing(tuple(states), ("share",))

    def offsets(self, group_ids: Iterable[str]) -> dict[str, dict[TopicPartition, SharePartitionOffsets | None]]:
        return {group_id: self.states.get(group_id, {}) for group_id in group_ids}

    def in_flight(self, group_id: str) -> dict[TopicPartition, list[InFlight]]:
        return self.flying.get(group_id, {})

    def alter(self, group_id: str, offsets: Mapping[TopicPartition, int]) -> None:
        self.states[group_id] = {
            place: SharePartitionOffsets(start=start, lag=None, leader_epoch=None) for place, start in offsets.items()
        }

    def delete_offsets(self, group_id: str, topics: Iterable[str]) -> dict[str, RequestRefused | None]:
        for place in [place for place in self.states[group_id] if place.topic in set(topics)]:
            del self.states[group_id][place]
        return dict.fromkeys(topics)


@pytest.fixture
def shares(monkeypatch: pytest.MonkeyPatch) -> FakeShareGroups:
    groups = FakeGroups()
    groups.add_log("emails", 0, 2, 9)
    groups.add("idle", type_="Share")
    groups.add("mailers", member("a", ("emails", 0), epoch=3), type_="Share")
    groups.add("readers")
    fake = FakeShareGroups(groups)
    fake.states["idle"] = {
        TopicPartition("emails", 0): SharePartitionOffsets(start=3, lag=6, leader_epoch=1),
        TopicPartition("emails", 1): None,
    }
    monkeypatch.setattr(connection, "open_cluster", lambda *_: FakeCluster(groups=groups, share_groups=fake))
    return fake


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        ("", "exactly one action"),
        ("--list --group a", "--group goes with"),
        ("--describe", "--describe needs --group or --all-groups."),
        ("--delete-offsets --topic emails", "--delete-offsets needs --group."),
        ("--delete-offsets --group a", "at least one --topic"),
        ("--describe --group a --members --offsets", "one of --offsets, --members and --state"),
        ("--describe --group a --members --in-flight", "one of --offsets, --members, --in-flight and --state"),
        ("--list --in-flight", "--in-flight goes with"),
        ("--reset-offsets --all-groups --all-topics --to-latest --execute", "--all-groups goes with"),
        ("--reset-offsets --group a --group b --all-topics --to-latest --execute", "one --group at a time"),
        ("--reset-offsets --group a --topic emails --execute", "exactly one of --to-earliest, --to-latest and"),
        ("--reset-offsets --group a --to-latest --execute", "--reset-offsets needs --topic or --all-topics."),
        ("--reset-offsets --group a --topic emails --to-latest", "--reset-offsets needs --dry-run or --execute."),
    ],
)
def test_options_that_do_not_go_together_are_refused(run: Run, words: str, complaint: str) -> None:
    result = run("share-groups", *words.split())
    assert result.exit_code == 2
    assert complaint in result.stderr


@pytest.mark.usefixtures("shares")
class TestShown:
    def test_only_share_groups_are_listed(self, run: Run) -> None:
        assert run("share-groups", "--list").stdout == "idle\nmailers\n"
        assert (
            run("share-groups", "--list", "--state", "empty").stdout == "GROUP           STATE\nidle            Empty\n"
        )

    def test_offsets(self, run: Run) -> None:
        result = run("share-groups", "--describe", "--group", "idle", "--group", "nix")
        assert result.exit_code == 1
        assert result.stdout == (
            "\n"
            "GROUP           TOPIC           PARTITION  START-OFFSET  LAG\n"
            "idle            emails          0          3             6\n"
            "idle            emails          1          -             -\n"
        )
        assert "Share group 'nix' does not exist; `barnabas share-groups --list` shows those that do" in result.stderr

    def test_members(self, run: Run) -> None:
        result = run("share-groups", "--describe", "--all-groups", "--members", "--verbose")
        assert result.stdout == (
            "\n"
            "GROUP           CONSUMER-ID     HOST            CLIENT-ID       #PARTITIONS  MEMBER-EPOCH  ASSIGNMENT\n"
            "mailers         a-id            /10.0.0.1       a               1            3             emails:0\n"
        )
        assert result.stderr == "Share group 'idle' has no active members.\n"

    def test_messages_in_flight(self, run: Run, shares: FakeShareGroups) -> None:
        words = ("share-groups", "--describe", "--group", "idle", "--in-flight")
        assert "Nothing is stored of messages of share group 'idle'" in run(*words).stderr
        runs = [
            InFlight(first=4, last=5, state="Acknowledged", deliveries=1),
            InFlight(first=6, last=6, state="Available", deliveries=2),
        ]
        shares.flying["idle"] = {TopicPartition("emails", 0): runs}
        assert run(*words).stdout == (
            "\n"
            "GROUP           TOPIC           PARTITION  FIRST-OFFSET  LAST-OFFSET   STATE         DELIVERIES\n"
            "idle            emails          0          4             5             Acknowledged  1\n"
            "idle            emails          0          6             6             Available     2\n"
        )
        (group,) = json.loads(run(*words, "--json").stdout)
        assert [one["deliveries"] for one in group["inFlight"]] == [1, 2]

    def test_json(self, run: Run) -> None:
        (group,) = json.loads(run("share-groups", "--describe", "--group", "idle", "--json").stdout)
        assert (group["type"], [one["lag"] for one in group["partitions"]]) == ("Share", [6, None])


class TestReset:
    def test_is_planned_first(self, run: Run, shares: FakeShareGroups) -> None:
        words = ("share-groups", "--reset-offsets", "--group", "idle", "--topic", "emails", "--to-earliest")
        before = dict(shares.states["idle"])
        planned = run(*words, "--dry-run")
        assert (planned.exit_code, shares.states["idle"]) == (0, before)
        assert "emails          0          2" in planned.stdout
        executed = run(*words, "--execute", "--json")
        (change,) = json.loads(executed.stdout)["offsets"]
        assert (change["offset"], change["newOffset"]) == (3, 2)
        (state,) = shares.states["idle"].values()
        assert state is not None
        assert state.start == 2

    @pytest.mark.usefixtures("shares")
    def test_leaves_a_group_with_workers_alone(self, run: Run) -> None:
        words = ("share-groups", "--reset-offsets", "--group", "mailers", "--topic", "emails", "--to-latest")
        result = run(*words, "--execute")
        assert (result.exit_code, result.stdout) == (1, "")
        assert "group 'mailers' is Stable: stop its consumers first" in result.stderr


class TestDeletion:
    def test_takes_share_groups_only(self, run: Run, shares: FakeShareGroups) -> None:
        result = run("share-groups", "--delete", "--group", "idle", "--group", "readers")
        assert result.exit_code == 1
        assert result.stdout == "These share groups were deleted successfully: 'idle'\n"
        assert "group 'readers': there is no such share group" in result.stderr
        assert sorted(shares.groups.groups) == ["mailers", "readers"]

    def test_of_offsets(self, run: Run, shares: FakeShareGroups) -> None:
        result = run("share-groups", "--delete-offsets", "--group", "idle", "--topic", "emails")
        assert result.stdout == "\nTOPIC           STATUS\nemails          Successful\n"
        assert shares.states["idle"] == {}
