"""What `barnabas acls` makes of a command line; the rest needs a broker."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.unit.cli.conftest import Run


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("--topic t", "Give exactly one action: --add, --remove or --list."),
        ("--add --list --topic t", "Give exactly one action"),
        ("--add --allow-principal User:a", "Say what the rule is for"),
        ("--remove", "Say what the rule is for"),
        ("--add --topic t", "--add needs --allow-principal or --deny-principal."),
        ("--add --topic t --allow-principal alice", "--allow-principal alice is no principal: write User:alice."),
        ("--add --topic t --deny-principal User:a --allow-host h", "--allow-host needs --allow-principal."),
        ("--add --topic t --allow-principal User:a --operation fly", "'fly' is not one of"),
        ("--add --topic t --allow-principal User:a --resource-pattern-type match", "--add takes literal or prefixed"),
        ("--remove --topic t --allow-principal User:a --resource-pattern-type any", "removes all rules"),
        ("--list --topic t --operation read", "--operation"),
        ("--add --producer --group g --allow-principal User:a", "--producer needs --topic."),
        ("--add --consumer --topic t --allow-principal User:a", "--consumer needs --group."),
        ("--add --consumer --topic t --group g --deny-principal User:a", "--consumer allows"),
        ("--add --idempotent --topic t --allow-principal User:a", "--idempotent needs --producer."),
        ("--add --producer --operation read --topic t --allow-principal User:a", "not both"),
        (
            "--add --topic t --operation ClusterAction --allow-principal User:a",
            "--operation ClusterAction does not go with --topic, which takes All, Read, Write, Create, Delete, Alter, "
            "Describe, DescribeConfigs, AlterConfigs.",
        ),
        ("--remove --group g --operation write --allow-principal User:a", "does not go with --group"),
        (
            "--add --topic t --cluster --operation Alter --operation Read --allow-principal User:a",
            "--operation Read does not go with --cluster",
        ),
    ],
)
def test_command_lines_that_mean_nothing_are_refused(run: Run, line: str, complaint: str) -> None:
    result = run("acls", *line.split())
    assert result.exit_code == 2, result.output
    assert complaint in result.stderr
