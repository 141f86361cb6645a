"""What docs/queues.md tells people to type: its workers, which run until somebody stops them, and its commands."""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from barnabas import Queue
from barnabas.clients import JSON
from tests.support.brokers import Barnabas
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

GUIDE = (Path(__file__).parents[3] / "docs" / "queues.md").read_text()


def block(language: str, word: str) -> str:
    """The one block in a language that has this word."""
    [found] = [
        text for text in re.findall(rf"^```{language}\n(.*?)^```$", GUIDE, re.MULTILINE | re.DOTALL) if word in text
    ]
    return str(found)


class Guide:
    """What is typed, on one broker, and what it prints."""

    def __init__(self, bootstrap: str, folder: Path) -> None:
        self.bootstrap = bootstrap
        self._folder = folder

    def python(self, word: str) -> str:
        """A block of Python."""
        return block("python", word).replace("localhost:9092", self.bootstrap)

    def run(self, program: str) -> None:
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
        assert (done.returncode, done.stderr) == (0, "")

    @contextmanager
    def worker(self, word: str) -> Iterator[Path]:
        """A worker of the guide; gives the file that it prints to. In the end somebody types Ctrl-C."""
        printed = self._folder / "printed"
        with printed.open("w") as file:
            worker = subprocess.Popen([sys.executable, "-u", "-c", self.python(word)], stdout=file, stderr=file)
        try:
            yield printed
            os.kill(worker.pid, signal.SIGINT)
            worker.wait(30)
        finally:
            worker.kill()
            worker.wait()
        assert re.findall(r"^\w*Error|^\w*Exception", printed.read_text(), re.MULTILINE) == []

    def shell(self, word: str, *added: str) -> dict[str, str]:
        """Type the commands of a block, each as it is; what they print, by their first word."""
        told: dict[str, str] = {}
        for line in block("sh", word).replace("\\\n", " ").splitlines():
            name, *words = shlex.split(line, comments=True)
            assert name == "barnabas"
            command = [sys.executable, "-m", "barnabas.cli.main", *words, "--bootstrap-server", self.bootstrap]
            if words[0] == "share-consumer-perf":
                command += ["--timeout", "1000"]
            done = subprocess.run(command, capture_output=True, text=True, timeout=60)
            assert done.returncode == 0, (line, done.stdout, done.stderr)
            told[" ".join(words)] = done.stdout
        return told


@pytest.fixture
def guide(tmp_path: Path) -> Iterator[Guide]:
    with Barnabas(tmp_path) as broker:
        yield Guide(broker.bootstrap, tmp_path)


def test_the_workers_and_commands_of_the_guide_work_when_pasted(guide: Guide) -> None:
    guide.run("from barnabas import Queue\nfrom barnabas.clients import JSON\n" + guide.python("queue.send"))
    with guide.worker("sending to") as printed:
        wait_until(lambda: "sending to someone@example.org" in printed.read_text(), "the worker to send the email")

    with Queue(guide.bootstrap, "emails", "mailers", value_serializer=JSON) as queue:
        queue.send({"to": "nobody"})
        for delivery in range(1, 5):
            message = queue.get(timeout=30)
            assert message is not None
            assert message.deliveries == delivery
            if delivery < 4:  # the end of the queue gives back the fourth
                message.retry().result(30)
    with guide.worker("the last try") as printed:
        wait_until(lambda: "given up: 1" in printed.read_text(), "the worker to give up at the last try")

    guide.shell("errors.deadletterqueue.copy.record.enable")
    with Queue(guide.bootstrap, "emails", "mailers", value_serializer=JSON) as queue:
        queue.send({"to": "dead"})
        message = queue.get(timeout=30)
        assert message is not None
        message.reject().result(30)
    with guide.worker("message.dead_letter") as printed:
        wait_until(lambda: "emails-0 2 1 Offset rejected by client." in printed.read_text(), "the dead letter")
        wait_until(lambda: '{"to":"dead"}' in printed.read_text(), "the message itself")

    with Queue(guide.bootstrap, "emails", value_serializer=JSON) as queue:
        for number in range(2):
            queue.send({"to": str(number)})
    told = list(guide.shell("barnabas consume").values())
    assert told[0].count('{"to"') == 1, "one message is taken"
    assert told[1].count('{"to"') == 1, "the other one is thrown away"
    assert "emails" in told[2], "the offsets are reset"
