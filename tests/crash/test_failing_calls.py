"""Whichever call to the file system fails while a log is written to, nothing acknowledged is lost by it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from barnabas.model.errors import StorageFailed
from barnabas.protocol.records.batch import read_header
from barnabas.storage.check import check
from tests.support.failing_calls import CONFIG, TRIES, FailingCalls, Fault, LogStory, committed
from tests.support.logs import NOW, TOPIC_ID, TP, StepManager, stored

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from barnabas.storage.log import Log


@pytest.mark.parametrize(("is_clean", "step"), [(True, 4), (False, 1)], ids=["stopped", "killed"])
@pytest.mark.parametrize("fault", Fault)
def test_a_log_outlives_any_call_that_fails(tmp_path: Path, fault: Fault, is_clean: bool, step: int) -> None:
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
        number += step
    assert number > 5


@pytest.mark.parametrize("fault", [Fault.NO_ROOM, Fault.NO_DESCRIPTOR, Fault.BAD_DISK])
def test_a_follower_outlives_any_call_that_fails(tmp_path: Path, fault: Fault) -> None:
    story = LogStory(tmp_path / "leader")
    story.stop(clean=True)
    story.run(FailingCalls(fault, -1))
    story.go_on()
    sent = stored(story.log)
    number, files = 0, FailingCalls(fault, 0)
    while number == 0 or files.hit:
        root = tmp_path / str(number)
        files = FailingCalls(fault, number)
        manager = StepManager(root, files).start({TP.topic: CONFIG})
        follower = manager.create(TP, TOPIC_ID, CONFIG)
        files.is_armed = True
        taken = follow(follower, manager, sent)
        manager.close(clean=False)

        manager = StepManager(root).start({TP.topic: CONFIG})
        again = manager.get(TP)
        assert again is not None
        assert len(stored(again)) >= taken
        assert follow(again, manager, sent) == len(sent)
        assert committed(again, again.log_end_offset) == committed(story.log, story.log.log_end_offset)
        assert again.producer_ends() == story.log.producer_ends()
        manager.close()
        assert not check(root).errors, (fault, number)
        number += 1
    assert number > 3


def follow(log: Log, manager: StepManager, sent: Sequence[bytes]) -> int:
    """Copy what the leader has, three batches at a time, until it is all there or no more is written.

    Returns how many batches are there.
    """
    for _ in range(len(sent) + TRIES):
        rest = [batch for batch in sent if read_header(batch).base_offset >= log.log_end_offset]
        if not rest or manager.failed_directories:
            break
        try:
            log.append_replica(b"".join(rest[:3]), now_ms=NOW)
            manager.drain()
        except StorageFailed:
            continue
    there = stored(log)
    assert there == sent[: len(there)]
    return len(there)
