"""A load that is interrupted ends between two commits."""

from __future__ import annotations

import signal
import threading
from typing import TYPE_CHECKING

import pytest

from barnabas.pipelines.loading import stopping as module
from barnabas.pipelines.loading.stopping import Abandoned, Stopped, Stopping, run_beside

if TYPE_CHECKING:
    from collections.abc import Iterator

WAIT = 30.0


@pytest.fixture(autouse=True)
def ctrl_c() -> Iterator[None]:
    """Ctrl-C raises, as in a terminal: a shell lets programs that it starts in the background ignore it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def interrupt_main() -> None:
    signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)


def test_what_a_load_gives_and_raises_reaches_who_waits() -> None:
    assert run_beside(lambda: 7, Stopping(), lambda: None) == 7
    with pytest.raises(ZeroDivisionError):
        run_beside(lambda: 1 // 0, Stopping(), lambda: None)


def test_a_commit_that_is_under_way_is_finished_and_no_other_is_begun() -> None:
    stopping, done = Stopping(), []
    dropped = threading.Event()

    def load() -> None:
        with stopping.uninterrupted():
            interrupt_main()
            while not stopping._requested.wait(WAIT):
                pass
            done.append("first")
        assert dropped.wait(WAIT), "tasks that run are dropped"
        with stopping.uninterrupted():
            done.append("second")

    with pytest.raises(KeyboardInterrupt) as raised:
        run_beside(load, stopping, dropped.set)
    assert done == ["first"] and not isinstance(raised.value, Abandoned)


def test_a_second_ctrl_c_leaves_at_once() -> None:
    stopping, over, committed = Stopping(), threading.Event(), threading.Event()

    def load() -> None:
        with stopping.uninterrupted():
            interrupt_main()
            stopping._requested.wait(WAIT)
            interrupt_main()
            over.wait(WAIT)
        committed.set()

    with pytest.raises(Abandoned):
        run_beside(load, stopping, lambda: None)
    assert not committed.is_set(), "it waited until the commit was over"
    over.set()


def test_a_load_that_waits_for_something_else_is_left_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "STOP_SECONDS", 0.05)
    over = threading.Event()

    def load() -> None:
        interrupt_main()
        over.wait(WAIT)

    with pytest.raises(Abandoned):
        run_beside(load, Stopping(), lambda: None)
    over.set()


def test_java_that_ends_before_it_has_dropped_the_tasks_leaves_no_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    """As it does at a second Ctrl-C, if it does not answer."""
    told: list[object] = []
    monkeypatch.setattr(threading, "excepthook", told.append)
    stopping, asked = Stopping(), threading.Event()
    dropping: list[threading.Thread] = []

    def drop() -> None:
        dropping.append(threading.current_thread())
        asked.set()
        raise ConnectionResetError

    def load() -> None:
        interrupt_main()
        asked.wait(WAIT)
        stopping.check()

    with pytest.raises(KeyboardInterrupt):
        run_beside(load, stopping, drop)
    dropping[0].join(WAIT)
    assert not told


def test_nobody_waits_for_spark_to_start() -> None:
    stopping, over = Stopping(), threading.Event()

    def load() -> None:
        with stopping.abandonable():
            interrupt_main()
            over.wait(WAIT)

    with pytest.raises(Abandoned):
        run_beside(load, stopping, lambda: None)
    over.set()


def test_a_pause_ends_with_a_stop() -> None:
    stopping = Stopping()
    stopping.pause(0)
    stopping.request_stop()
    with pytest.raises(Stopped):
        stopping.pause(WAIT)
