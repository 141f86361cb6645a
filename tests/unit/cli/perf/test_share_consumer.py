"""`share-consumer-perf`: a message counts when its acknowledgement is stored, and not before."""

from __future__ import annotations

import threading
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any

from barnabas.cli.perf.share_consumer import ShareConsumerRun, Taken
from barnabas.clients.errors import NotAcknowledged
from barnabas.clients.records import ConsumerRecord
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    import pytest


class Message:
    """A message of ten bytes whose acknowledgement is stored, or not."""

    record = ConsumerRecord("t", 0, 0, 0, 1, None, b"0123456789")

    def __init__(self, error: Exception | None) -> None:
        self._error = error

    def done(self) -> Future[None]:
        stored = Future[None]()
        if self._error is None:
            stored.set_result(None)
        else:
            stored.set_exception(self._error)
        return stored


class Queue:
    """Has these messages; the acknowledgement of every second one is lost."""

    def __init__(self) -> None:
        self.taken = 0

    def __enter__(self) -> Queue:
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing to close."""

    def get(self, timeout: float) -> Message:
        self.taken += 1
        return Message(NotAcknowledged("lost") if self.taken % 2 else None)


class LateQueue(Queue):
    """Refuses the acknowledgement of the third message after it was taken, and no others."""

    def __init__(self) -> None:
        super().__init__()
        self.run: ShareConsumerRun | None = None
        self._threads: list[threading.Thread] = []

    def __exit__(self, *_: object) -> None:
        for thread in self._threads:
            thread.join()

    def get(self, timeout: float) -> Message:
        self.taken += 1
        message = Message(None)
        if self.taken == 3:
            refused = Future[None]()
            message.done = lambda: refused  # type: ignore[method-assign]
            self._threads.append(threading.Thread(target=self._refuse, args=(refused,)))
            self._threads[0].start()
        return message

    def _refuse(self, stored: Future[None]) -> None:
        wait_until(lambda: self.run is not None and self.run._begun >= 3, "all messages to be taken")
        stored.set_exception(NotAcknowledged("its lock was over"))


class Options:
    """As many options as a run looks at."""

    threads = 1
    count = 3
    timeout = 1000
    reporting_interval = 60_000
    date_format = "yyyy"
    as_json = True
    show_consumer_stats = False

    def __init__(self, opened: Queue | None = None) -> None:
        self.opened = opened or Queue()

    def queue(self) -> Queue:
        return self.opened


def test_a_message_is_made_up_for_whose_acknowledgement_is_refused_when_all_are_taken(
    capsys: pytest.CaptureFixture[str],
) -> None:
    late = LateQueue()
    options: Any = Options(late)
    late.run = ShareConsumerRun(options)
    late.run.run()
    assert (late.run._total.messages, late.taken) == (3, 4)
    assert "WARNING" not in capsys.readouterr().out


def test_what_was_not_stored_does_not_count(capsys: pytest.CaptureFixture[str]) -> None:
    options: Any = Options()
    run = ShareConsumerRun(options)
    run.run()
    assert run._total == Taken(messages=3, bytes=30)
    assert options.opened.taken == 6
    assert '"messages": 3' in capsys.readouterr().out
