"""Command lines of reassign-partitions and leader-election that mean nothing; {} stands for a file that is there."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

    from tests.unit.cli.conftest import Run


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("", "Give exactly one action: --generate, --execute, --verify, --cancel or --list."),
        ("--list --verify --reassignment-json-file {}", "Give exactly one action"),
        ("--execute", "--execute needs --reassignment-json-file."),
        ("--generate --topics-to-move-json-file {}", "--generate needs --broker-list."),
        ("--list --throttle 1000", "--throttle goes with --execute, not with --list."),
        ("--verify --reassignment-json-file {} --additional", "--additional goes with --execute, not with --verify."),
        (
            "--execute --reassignment-json-file {} --preserve-throttles",
            "--preserve-throttles goes with --verify or --cancel, not with --execute.",
        ),
        ("--execute --reassignment-json-file {} --json", "--json goes with --verify or --list, not with --execute."),
        ("--execute --reassignment-json-file /nowhere", "does not exist"),
    ],
)
def test_reassign_partitions(run: Run, tmp_path: Path, line: str, complaint: str) -> None:
    file = tmp_path / "plan.json"
    file.write_text("{}")
    result = run("reassign-partitions", *shlex.split(line.format(file)))
    assert result.exit_code == 2
    assert complaint in result.stderr


PREFERRED = "--election-type preferred"


@pytest.mark.parametrize(
    ("line", "text", "complaint"),
    [
        ("--all-topic-partitions", "", "Missing option '--election-type'"),
        ("--election-type fair --all-topic-partitions", "", "'fair' is not one of 'preferred', 'unclean'"),
        (PREFERRED, "", "Give one of --topic, --path-to-json-file and --all-topic-partitions."),
        (f"{PREFERRED} --topic t --partition 0 --all-topic-partitions", "", "Give one of --topic"),
        (f"{PREFERRED} --topic t", "", "--topic and --partition go together."),
        (f"{PREFERRED} --partition 0 --all-topic-partitions", "", "--topic and --partition go together."),
        (f"{PREFERRED} --path-to-json-file {{}}", "{", "is not of the form"),
        (f"{PREFERRED} --path-to-json-file {{}}", "{}", "is not of the form"),
        (
            f"{PREFERRED} --path-to-json-file {{}}",
            '{"partitions": [{"topic": "t", "partition": 0}, {"topic": "t", "partition": 0}]}',
            "has t-0 more than once",
        ),
        (
            f"{PREFERRED} --all-topic-partitions --admin.config {{}} --command-config {{}}",
            "",
            "Give --command-config or --admin.config, not both.",
        ),
    ],
)
def test_leader_election(run: Run, tmp_path: Path, line: str, text: str, complaint: str) -> None:
    file = tmp_path / "partitions.json"
    file.write_text(text)
    result = run("leader-election", *shlex.split(line.format(file, file)))
    assert result.exit_code == 2
    assert complaint in result.stderr
