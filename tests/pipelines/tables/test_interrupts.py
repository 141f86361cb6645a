"""Ctrl-C and SIGTERM in the middle of a commit: it is finished first."""

from __future__ import annotations

import signal
import threading
import time
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pytest

from barnabas.pipelines.tables.interrupts import uninterrupted
from barnabas.pipelines.tables.opening import open_table
from barnabas.pipelines.tables.parquet.table import ParquetTable
from tests.support.load_jobs import MemoryTopic, load_from
from tests.support.tables import add, content, numbers

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

MAIN = threading.main_thread().ident or 0
"""Loads run beside the main thread, which is the one that gets signals."""


class Told(BaseException):
    """What the process does about SIGTERM in these tests."""


@pytest.fixture(autouse=True)
def ends_by_an_error() -> Iterator[None]:
    def end(*_: object) -> None:
        raise Told

    # Ctrl-C too, since whoever starts tests in the background has them ignore it.
    before = {
        number: signal.signal(number, handler)
        for number, handler in ((signal.SIGTERM, end), (signal.SIGINT, signal.default_int_handler))
    }
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize(("number", "error"), [(signal.SIGINT, KeyboardInterrupt), (signal.SIGTERM, Told)])
def test_a_signal_waits_for_the_end_of_the_block(number: signal.Signals, error: type[BaseException]) -> None:
    steps = []
    with pytest.raises(error):
        with uninterrupted(), uninterrupted():
            signal.raise_signal(number)
            steps.append("went on")
        steps.append("never here")
    assert steps == ["went on"]
    with pytest.raises(error):
        signal.raise_signal(number)


def test_a_signal_is_not_forgotten_when_the_block_fails() -> None:
    with pytest.raises(Told), uninterrupted():
        signal.raise_signal(signal.SIGTERM)
        raise LookupError


@pytest.mark.parametrize("deep", [1, 2, 3])
def test_who_cannot_wait_says_it_twice(deep: int) -> None:
    steps = []
    with pytest.raises(KeyboardInterrupt), ExitStack() as blocks:
        for _ in range(deep):
            blocks.enter_context(uninterrupted())
        signal.raise_signal(signal.SIGTERM)
        steps.append("went on")
        signal.raise_signal(signal.SIGINT)
        steps.append("never here")
    assert steps == ["went on"]


def test_another_thread_has_no_signals() -> None:
    done = []

    def work() -> None:
        with uninterrupted():
            done.append(True)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert done


def test_a_load_ends_after_its_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The signal comes when the manifest is written and nothing is renamed yet."""
    real = ParquetTable._apply

    def interrupted(self: ParquetTable, *given: Any) -> None:
        monkeypatch.setattr(ParquetTable, "_apply", real)
        signal.pthread_kill(MAIN, signal.SIGINT)
        real(self, *given)

    topic = MemoryTopic()
    topic.send(b'{"n": 1}', b"broken")
    monkeypatch.setattr(ParquetTable, "_apply", interrupted)
    with pytest.raises(KeyboardInterrupt):
        load_from(topic, str(tmp_path / "t"), monkeypatch)
    assert content("parquet", tmp_path / "t").column("n").to_pylist() == [1]
    assert content("parquet", tmp_path / "t_dead").num_rows == 1


def test_a_load_that_tells_its_group_ends_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The commit is made, and the coordinator of the group may take its time."""
    answered = threading.Event()

    def tell(*_: object, **__: object) -> None:
        signal.pthread_kill(MAIN, signal.SIGINT)
        answered.wait(60)

    topic = MemoryTopic()
    topic.send(b'{"n": 1}')
    monkeypatch.setattr(topic, "commit", tell)
    began = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        load_from(topic, str(tmp_path / "t"), monkeypatch)
    assert time.monotonic() - began < 30
    answered.set()
    assert content("parquet", tmp_path / "t").column("n").to_pylist() == [1]


def test_compaction_ends_with_each_row_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = ParquetTable._apply

    def interrupted(self: ParquetTable, *given: Any) -> None:
        signal.raise_signal(signal.SIGTERM)
        real(self, *given)

    with open_table(str(tmp_path / "t"), "parquet") as table:
        add(table, 0, 10)
        add(table, 10, 20)
        monkeypatch.setattr(ParquetTable, "_apply", interrupted)
        with pytest.raises(Told):
            table.compact(1 << 20)
        assert table.size().files == 1
        assert numbers(table) == list(range(20))
