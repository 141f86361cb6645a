"""Private buffers of unfinished frames: large ones are used again, by one frame at a time."""

from __future__ import annotations

import pytest

from barnabas.model.errors import InvalidFrame
from barnabas.net.inbox import LARGE, SPARE, Budget, Inbox

MB = 1 << 20


def nothing() -> None:
    raise AssertionError("nobody needs the memory")


def filled(budget: Budget, wanted: int, byte: bytes = b"x") -> Inbox:
    """An inbox into which all but the last byte of a frame has arrived."""
    inbox = Inbox(budget)
    inbox.keep(memoryview(byte * 10), wanted, 0.0, nothing)
    while inbox.filled < wanted - 1:
        with inbox.room(wanted, 0.0) as room:
            count = min(len(room), wanted - 1 - inbox.filled)
            room[:count] = byte * count
            inbox.filled += count
    return inbox


def test_the_next_frame_gets_the_large_buffer_of_the_last() -> None:
    budget = Budget(100 * MB)
    first = filled(budget, MB)
    buffer = first._buffer
    assert budget.used == len(buffer)
    first.clear()
    assert budget.used == 0
    second = filled(budget, MB - 1000, b"y")
    assert second._buffer is buffer
    assert bytes(second.data()) == b"y" * (MB - 1001), "and nothing of what was in it"
    assert budget.used == len(buffer)
    assert filled(budget, MB)._buffer is not buffer


def test_a_buffer_that_someone_has_views_of_is_not_used_again() -> None:
    budget = Budget(100 * MB)
    first = filled(budget, MB)
    view = first.data()[10:20]
    first.clear()
    second = filled(budget, MB, b"y")
    assert second._buffer is not view.obj
    assert bytes(view) == b"x" * 10


def test_small_frames_take_no_large_buffers_and_few_buffers_are_kept() -> None:
    budget = Budget(100 * MB)
    inboxes = [filled(budget, MB) for _ in range(10)]
    buffers = [inbox._buffer for inbox in inboxes]
    for inbox in inboxes:
        inbox.clear()
    small = filled(budget, LARGE // 4)
    assert budget.used == len(small._buffer) < LARGE
    again = [filled(budget, MB)._buffer for _ in range(10)]
    assert 1 <= sum(any(one is other for other in buffers) for one in again) <= SPARE // MB


def test_what_is_kept_does_not_help_a_frame_over_the_limit() -> None:
    budget = Budget(2 * MB)
    filled(budget, MB).clear()
    filled(budget, MB)
    with pytest.raises(InvalidFrame, match="more than queued"):
        filled(budget, 2 * MB)
    assert budget.used <= budget.limit


def test_a_buffer_that_is_charged_to_the_same_budget_again_keeps_its_place() -> None:
    """As that of a client that logs in again, and has sent more than that."""
    budget, evicted = Budget(100_000), list[str]()
    inbox = Inbox(budget)
    inbox.keep(memoryview(bytes(90_000)), 0, 0.0, lambda: evicted.append("it"))
    inbox.charge(budget, 1.0, nothing)
    assert budget.used == 90_000
    inbox.drop(10, 2.0)
    with pytest.raises(InvalidFrame):
        Inbox(budget).keep(memoryview(bytes(90_000)), 0, 10.0, nothing)
    assert evicted == ["it"]
