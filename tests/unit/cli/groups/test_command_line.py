from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.unit.cli.conftest import Run


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("", "Give exactly one action: --list, --describe, --reset-offsets, --delete, --delete-offsets or"),
        ("--list --describe", "Give exactly one action"),
        ("--list --group g", "--group goes with --describe, --reset-offsets, --delete or --delete-offsets, not with"),
        ("--describe", "--describe needs --group or --all-groups."),
        ("--delete", "--delete needs --group or --all-groups."),
        ("--delete --group g --all-groups", "Give --group or --all-groups, not both."),
        ("--delete --group g --topic t", "--topic goes with --reset-offsets or --delete-offsets, not with --delete."),
        ("--describe --group g --type", "--type goes with --list, not with --describe."),
        ("--describe --group g --members --state", "takes one of --offsets, --members and --state."),
        ("--describe --group g --state stable", "leave out stable after --state"),
        ("--describe --group g --execute", "--execute goes with --reset-offsets, not with --describe."),
        ("--list --members", "--members goes with --describe, not with --list."),
        ("--delete-offsets --group g", "--delete-offsets needs one --group, and at least one --topic."),
        ("--delete-offsets --all-groups --topic t", "--all-groups goes with"),
        ("--reset-offsets --to-latest --all-topics", "--reset-offsets needs --group or --all-groups."),
        ("--reset-offsets --group g --all-topics", "--reset-offsets needs exactly one of --to-earliest, --to-latest,"),
        ("--reset-offsets --group g --all-topics --to-latest --to-offset 0", "--reset-offsets needs exactly one of"),
        ("--reset-offsets --group g --to-latest", "--reset-offsets needs --topic, --all-topics or --from-file."),
        ("--reset-offsets --group g --topic t --all-topics --to-latest", "Give --topic or --all-topics, not both."),
        ("--reset-offsets --group g --topic t --to-latest --dry-run --execute", "Give --dry-run or --execute"),
        ("--reset-offsets --group g --topic t --to-latest --export --json", "Give --export (CSV) or --json"),
        ("--reset-offsets --group g --topic t:x --to-latest", "--topic t:x is not of the form NAME or NAME:0,1,..."),
        ("--reset-offsets --group g --topic t --to-datetime noon", "--to-datetime noon is not of the form"),
        ("--validate-regex a.* --group g", "--group goes with"),
        ("nonsense", "No such command 'nonsense'."),
    ],
)
@pytest.mark.usefixtures("groups")
def test_command_lines_that_mean_nothing_are_refused(run: Run, line: str, complaint: str) -> None:
    result = run("groups", *line.split())
    assert result.exit_code == 2
    assert complaint in result.stderr


def test_help_has_options_commands_and_examples(run: Run) -> None:
    shown = run("groups", "--help").stdout
    assert shown.index("Where to reset to:") < shown.index("Commands:") < shown.index("Examples:")
    assert "import-zookeeper" in shown


def test_patterns_are_checked_without_a_broker(run: Run) -> None:
    valid = run("groups", "--validate-regex", "orders-.*")
    assert (valid.exit_code, valid.stdout) == (0, "The regular expression `orders-.*` is valid.\n")
    invalid = run("groups", "--validate-regex", "orders-(?=x)")
    assert (invalid.exit_code, invalid.stdout) == (1, "")
    assert "`orders-(?=x)` is not a valid regular expression: invalid perl operator" in invalid.stderr
