"""The process that does the cleaning's work on records: `python -m barnabas.storage.cleaner.worker.process`.

It is started by process.py, which speaks with it through its standard input and output, line by line:

    in    task JSON                 clean this log
    out   group JSON                a new segment is ready; the answer is `go` or `stop`
    out   done JSON                 the log is clean
    out   aborted / failed / broken TEXT

`failed` is a file system's error, which may pass; `broken` is bad data or a mistake in this program, which does not.
When its standard input ends, the broker is gone or has no more use for it, and the process ends at once, whatever it is
doing: its unfinished files are removed by the broker, or at its next start. It is nice to everyone else.
"""

from __future__ import annotations

import os
import queue
import signal
import sys
import threading
from typing import TYPE_CHECKING, Final

from barnabas.model.errors import BarnabasError
from barnabas.storage.cleaner.task import CleaningTask
from barnabas.storage.cleaner.worker.cleaning import Cleaning, CleaningAborted
from barnabas.storage.files import FileSystem

if TYPE_CHECKING:
    from barnabas.storage.cleaner.task import CleanedGroup

NICENESS: Final = 10
GO: Final = "go"
STOP: Final = "stop"


class Worker:
    """Takes tasks, one after another."""

    def __init__(self) -> None:
        self._lines: queue.SimpleQueue[str] = queue.SimpleQueue()

    def listen(self) -> None:
        """Pass on what comes in, until it ends."""
        for line in sys.stdin:
            self._lines.put(line.rstrip("\n"))
        os._exit(0)

    def run(self) -> None:
        """Carry out tasks for ever."""
        while True:
            word, _, text = self._lines.get().partition(" ")
            if word == "task":
                self._carry_out(CleaningTask.decode(text))

    def _carry_out(self, task: CleaningTask) -> None:
        try:
            say("done", Cleaning(task, FileSystem()).run(self._ask).encode())
        except (CleaningAborted, FileNotFoundError) as error:
            say("aborted", str(error))
        except OSError as error:
            say("failed", str(error))
        except BarnabasError as error:
            say("broken", str(error))
        except Exception as error:
            say("broken", f"{type(error).__name__}: {error}")

    def _ask(self, group: CleanedGroup) -> bool:
        say("group", group.encode())
        return self._lines.get() == GO


def say(word: str, text: str) -> None:
    """Tell the broker something."""
    sys.stdout.write(f"{word} {text}".replace("\n", " ") + "\n")
    sys.stdout.flush()


def main() -> None:
    """Run until standard input ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the broker, which sees to us
    os.nice(NICENESS)
    worker = Worker()
    threading.Thread(target=worker.run, daemon=True).start()
    worker.listen()


if __name__ == "__main__":
    main()
