"""Command lines of `barnabas consume` that mean nothing, or lead nowhere."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

import pytest

from barnabas.cli.consume import starting

if TYPE_CHECKING:
    from tests.unit.cli.conftest import Run


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("--share --filter 'value > 1'", "--filter does not go with --share"),
        ("--share --from-beginning", "--from-beginning does not go with --share"),
        ("--share --release --reject", "Give --release or --reject, not both."),
        ("--release", "--share"),
    ],
)
def test_what_does_not_go_together(run: Run, line: str, complaint: str) -> None:
    result = run("consume", "--topic", "t", *shlex.split(line))
    assert result.exit_code == 2
    assert complaint in result.stderr


@pytest.mark.parametrize("share", [(), ("--share",)])
def test_a_topic_that_cannot_be_is_not_waited_for(
    run: Run, monkeypatch: pytest.MonkeyPatch, share: tuple[str, ...]
) -> None:
    monkeypatch.setattr(starting, "_is_listed", lambda *_: False)
    monkeypatch.setattr("barnabas.clients.logins.require_login", lambda *_: None)
    result = run("consume", "--topic", "bad topic!", *share)
    assert result.exit_code == 1
    assert "Topic name is invalid" in result.stderr
