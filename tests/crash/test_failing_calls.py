"""Whichever call to the file system fails while a log is written to, nothing acknowledged is lost by it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from barnabas.storage.check import check
from tests.support.failing_calls import FailingCalls, Fault, LogStory

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("is_clean", [True, False], ids=["stopped", "killed"])
@pytest.mark.parametrize("fault", Fault)
def test_a_log_outlives_any_call_that_fails(tmp_path: Path, fault: Fault, is_clean: bool) -> None:
    number, files = 0, FailingCalls(fault, 0)
    while number == 0 or files.hit:
        root = tmp_path / str(number)
        story = LogStory(root)
        story.stop(clean=True)
        files = FailingCalls(fault, number)
        story.run(files)
        story.check()
        story.stop(clean=is_clean)

        story.start()
        story.check()
        story.go_on()
        story.stop(clean=True)
        assert not check(root).errors, (fault, number)
        number += 1
    assert number > 5
