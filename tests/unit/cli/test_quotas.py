"""What `barnabas quotas` makes of a command line; the rest needs a broker."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.unit.cli.conftest import Run

SET = "--add-config producer_byte_rate=1"


@pytest.mark.parametrize("command", ["quotas", "configs"])
@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("--describe --user a --user-defaults", "--user or --user-defaults, not both"),
        (f"--alter --user a --ip 10.0.0.1 {SET}", "A quota of an address is for no user"),
        ("--alter --user a", "--alter needs"),
        (f"--alter --entity-type users {SET}", "--alter needs a name for each type"),
        (f"--alter --entity-type users --entity-type users {SET}", "twice for users and clients"),
        (f"--alter --entity-type users --entity-name a --entity-name b {SET}", "more --entity-name than --entity-type"),
        (f"--alter --entity-type users --user a {SET}", "not both"),
        ("--alter --user a --add-config producer_byte_rate=many", "producer_byte_rate=many is not a number"),
        ("--alter --user a --add-config producer_byte_rate=nan", "is not a number"),
        ("--alter --user a --add-config SCRAM-SHA-512=[password=x]", "does not belong on a command line"),
        ("--alter --user a --delete-config byte_rate", "There is no quota byte_rate"),
        ("--describe --entity-type users --entity-type clients --entity-name a --entity-default", "--client-defaults"),
    ],
)
def test_command_lines_that_mean_nothing_are_refused(run: Run, command: str, line: str, complaint: str) -> None:
    result = run(command, *line.split())
    assert result.exit_code == 2, result.output
    assert complaint in result.stderr


def test_something_has_to_be_named(run: Run) -> None:
    result = run("quotas", "--describe")
    assert result.exit_code == 2
    assert "Give --user, --client or --ip" in result.stderr
