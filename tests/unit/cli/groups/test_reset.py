from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from barnabas.cli.groups import reset
from barnabas.model.ids import TopicPartition
from tests.unit.cli.groups.conftest import member

if TYPE_CHECKING:
    from pathlib import Path

    from tests.unit.cli.conftest import Run
    from tests.unit.cli.groups.conftest import FakeGroups

ORDERS = [TopicPartition("orders", partition) for partition in range(3)]
NOON = 1_738_324_800_000
"""2025-01-31T12:00:00.000Z"""


@pytest.fixture(autouse=True)
def a_group(groups: FakeGroups, monkeypatch: pytest.MonkeyPatch) -> None:
    """Group g has read partitions 0 and 1 of three; their records are a minute apart, the last one of noon."""
    for partition in ORDERS:
        groups.logs[partition] = (10, 30)
        groups.record_times[partition] = [NOON + (at - 19) * 60_000 for at in range(20)]
    groups.add("g")
    groups.commit("g", {ORDERS[0]: 15, ORDERS[1]: 25})
    monkeypatch.setattr(reset, "now_ms", lambda: NOON)


def offsets_of(groups: FakeGroups, group: str = "g") -> list[int | None]:
    committed = groups.offsets_of.get(group, {})
    return [committed[partition].offset if partition in committed else None for partition in ORDERS]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("--topic orders --to-earliest", [10, 10, 10]),
        ("--topic orders --to-latest", [30, 30, 30]),
        ("--topic orders --to-current", [15, 25, 30]),
        ("--topic orders --to-offset 20", [20, 20, 20]),
        ("--topic orders:0,2 --to-offset 20", [20, 25, 20]),
        ("--all-topics --to-earliest", [10, 10, None]),
        ("--all-topics --shift-by 3", [18, 28, None]),
        ("--all-topics --shift-by -4", [11, 21, None]),
        ("--topic orders --to-datetime 2025-01-31T11:55:00.000", [24, 24, 24]),
        ("--topic orders --to-datetime 2025-01-31T12:55:00.000+01:00", [24, 24, 24]),
        ("--topic orders --to-datetime 2025-01-31T11:54:00.001Z", [24, 24, 24]),
        ("--topic orders --by-duration PT5M", [24, 24, 24]),
        ("--topic orders --by-duration P1D", [10, 10, 10]),
    ],
)
def test_scenarios(run: Run, groups: FakeGroups, words: str, expected: list[int | None]) -> None:
    result = run("groups", "--reset-offsets", "--group", "g", *words.split(), "--execute")
    assert (result.exit_code, result.stderr) == (0, "")
    assert offsets_of(groups) == expected


@pytest.mark.parametrize(
    ("words", "expected", "warning"),
    [
        ("--to-offset 99", [30, 30, 30], "orders-0 has offsets 10 to 30; 99 becomes 30"),
        ("--to-offset 0", [10, 10, 10], "orders-2 has offsets 10 to 30; 0 becomes 10"),
        (
            "--to-datetime 2025-01-31T12:00:01.000",
            [30, 30, 30],
            "orders-1 has no record at or after that time: the new offset is the end",
        ),
    ],
)
def test_offsets_are_kept_within_the_log(
    run: Run, groups: FakeGroups, words: str, expected: list[int], warning: str
) -> None:
    result = run("groups", "--reset-offsets", "--group", "g", "--topic", "orders", *words.split(), "--execute")
    assert result.exit_code == 0
    assert warning in result.stderr
    assert offsets_of(groups) == expected


def test_prints_what_kafka_consumer_groups_prints(run: Run) -> None:
    result = run("groups", "--reset-offsets", "--group", "g", "--topic", "orders:2,0", "--to-earliest", "--execute")
    assert result.stdout == (
        "\n"
        "GROUP           TOPIC           PARTITION  NEW-OFFSET\n"
        "g               orders          0          10\n"
        "g               orders          2          10\n"
    )


def test_a_dry_run_changes_nothing_and_is_the_default(run: Run, groups: FakeGroups) -> None:
    words = ("groups", "--reset-offsets", "--group", "g", "--topic", "orders", "--to-latest")
    meant, default = run(*words, "--dry-run"), run(*words)
    assert meant.stdout == default.stdout
    assert (meant.stderr, offsets_of(groups)) == ("", [15, 25, None])
    assert default.stderr.startswith("Nothing was changed. Add --execute")


def test_a_group_that_does_not_exist_is_made(run: Run, groups: FakeGroups) -> None:
    assert (
        run("groups", "--reset-offsets", "--group", "n", "--topic", "orders", "--to-latest", "--execute").exit_code == 0
    )
    assert offsets_of(groups, "n") == [30, 30, 30]


def test_nothing_to_reset_is_said(run: Run) -> None:
    result = run("groups", "--reset-offsets", "--group", "n", "--all-topics", "--to-latest", "--dry-run")
    assert (result.exit_code, result.stdout) == (0, "")
    assert result.stderr == ("Group n has committed no offsets, so --all-topics selects no topic: use --topic.\n")


def test_a_group_with_members_is_left_alone(run: Run, groups: FakeGroups) -> None:
    groups.add("busy", member("a", ("orders", 0)))
    result = run("groups", "--reset-offsets", "--all-groups", "--topic", "orders", "--to-latest", "--execute")
    assert result.exit_code == 1
    assert "group 'busy' is Stable: stop its consumers first." in result.stderr
    assert "busy" not in result.stdout
    assert (offsets_of(groups, "busy"), offsets_of(groups)) == ([None] * 3, [30, 30, 30])


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        ("--topic nix --to-latest", "There is no topic nix"),
        ("--topic orders:7 --to-latest", "There is no partition orders-7"),
        ("--topic orders --shift-by 1", "The group has committed no offset for orders-2"),
    ],
)
def test_what_cannot_be_done_changes_nothing(run: Run, groups: FakeGroups, words: str, complaint: str) -> None:
    result = run("groups", "--reset-offsets", "--group", "g", *words.split(), "--execute")
    assert result.exit_code == 1
    assert complaint in result.stderr
    assert offsets_of(groups) == [15, 25, None]


def test_partitions_without_leader_are_named(run: Run, groups: FakeGroups) -> None:
    groups.leaderless.add(ORDERS[1])
    result = run("groups", "--reset-offsets", "--group", "g", "--topic", "orders", "--to-latest", "--execute")
    assert (result.exit_code, offsets_of(groups)) == (1, [15, 25, None])
    assert "orders-1 has no leader: try again when a broker" in result.stderr


class TestFiles:
    def test_export_and_import_bring_offsets_back(self, run: Run, groups: FakeGroups, tmp_path: Path) -> None:
        kept = run("groups", "--reset-offsets", "--group", "g", "--all-topics", "--to-current", "--export")
        assert (kept.stdout, kept.stderr) == ("orders,0,15\norders,1,25\n", "")
        file = tmp_path / "offsets.csv"
        file.write_text(kept.stdout)
        run("groups", "--reset-offsets", "--group", "g", "--all-topics", "--to-latest", "--execute")
        assert run("groups", "--reset-offsets", "--group", "g", "--from-file", file, "--execute").exit_code == 0
        assert offsets_of(groups) == [15, 25, None]

    def test_several_groups_have_their_names_in_it(self, run: Run, groups: FakeGroups, tmp_path: Path) -> None:
        groups.commit("other, with comma", {ORDERS[2]: 20})
        words = ("groups", "--reset-offsets", "--all-groups")
        kept = run(*words, "--all-topics", "--to-current", "--export").stdout
        assert kept == 'g,orders,0,15\ng,orders,1,25\n"other, with comma",orders,2,20\n'
        file = tmp_path / "offsets.csv"
        file.write_text(kept)
        run(*words, "--all-topics", "--to-latest", "--execute")
        assert run(*words, "--from-file", file, "--execute").exit_code == 0
        assert (offsets_of(groups), offsets_of(groups, "other, with comma")) == ([15, 25, None], [None, None, 20])

    @pytest.mark.parametrize(
        ("text", "complaint"),
        [
            ("orders,0\n", "line 1: expected [group,]topic,partition,offset"),
            ("orders,0,5\norders,one,5\n", "line 2: partition and offset have to be numbers"),
            ("other,orders,0,5\n", "has no offsets of group g"),
        ],
    )
    def test_bad_files_are_named_with_the_line(self, run: Run, tmp_path: Path, text: str, complaint: str) -> None:
        file = tmp_path / "offsets.csv"
        file.write_text(text)
        result = run("groups", "--reset-offsets", "--group", "g", "--from-file", file, "--execute")
        assert result.exit_code == 1
        assert complaint in result.stderr


def test_json(run: Run) -> None:
    words = ("groups", "--reset-offsets", "--group", "g", "--topic", "orders:0,2", "--to-latest", "--dry-run", "--json")
    assert json.loads(run(*words).stdout) == {
        "executed": False,
        "offsets": [
            {"group": "g", "topic": "orders", "partition": 0, "offset": 15, "newOffset": 30},
            {"group": "g", "topic": "orders", "partition": 2, "offset": None, "newOffset": 30},
        ],
    }


@pytest.mark.usefixtures("terminal")
def test_a_person_sees_old_and_new(run: Run) -> None:
    shown = run("groups", "--reset-offsets", "--group", "g", "--topic", "orders", "--to-latest", "--dry-run").stdout
    assert ["g", "orders", "1", "25", "30"] in [line.split() for line in shown.splitlines()]
    assert "Would become" in shown
