"""Commands in a terminal of their own, as people see them: tables there, plain lines in a pipe."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import select
import struct
import subprocess
import sys
import termios
import time
from typing import TYPE_CHECKING, Final

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

if TYPE_CHECKING:
    from tests.compat.cli.conftest import Cli
    from tests.compat.conftest import TopicMaker

COLUMNS: Final = 100
CONTROL: Final = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


class Screen:
    """What a command wrote to a terminal: all of it, and without the codes for colours and movements."""

    def __init__(self, raw: str, code: int) -> None:
        self.raw = raw
        self.code = code
        self.lines = [line.rstrip() for line in CONTROL.sub("", raw).replace("\r\n", "\n").split("\n")]


def in_terminal(*words: object, seconds: float = 60) -> Screen:
    """Run a command with a terminal of 100 columns on all three of its ends."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, COLUMNS, 0, 0))
    environment = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "NO_COLOR")}
    command = [sys.executable, "-m", "barnabas.cli.main", *map(str, words)]
    with subprocess.Popen(
        command, stdin=theirs, stdout=theirs, stderr=theirs, env={**environment, "TERM": "xterm-256color"}
    ) as process:
        os.close(theirs)
        written = bytearray()
        readable = select.poll()
        readable.register(ours)
        deadline = time.monotonic() + seconds
        try:
            while time.monotonic() < deadline:
                if not readable.poll(100):
                    continue
                try:
                    piece = os.read(ours, 65536)
                except OSError:  # how Linux says that nobody has the other end any more
                    break
                if not piece:
                    break
                written += piece
            else:
                raise AssertionError(f"{words} did not end within {seconds:g} s: {written.decode()}")
        finally:
            process.kill()
            os.close(ours)
        return Screen(written.decode(), process.wait())


@pytest.fixture
def topic(bootstrap: str, new_topic: TopicMaker) -> str:
    """Two partitions, with three records in the second, of which a group of the topic's name has read two."""
    name = new_topic(2)
    producer = Producer({"bootstrap.servers": bootstrap})
    for _ in range(3):
        producer.produce(name, b"x", partition=1)
    assert producer.flush(30) == 0
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": name})
    consumer.commit(offsets=[TopicPartition(name, 1, 2)], asynchronous=False)
    consumer.close()
    return name


def test_a_table_in_a_terminal_and_lines_in_a_pipe(cli: Cli, bootstrap: str, topic: str) -> None:
    words = ("get-offsets", "--bootstrap-server", bootstrap, "--topic", topic)
    screen = in_terminal(*words)
    assert screen.code == 0
    shown = [line.split() for line in screen.lines if line.strip()]
    assert shown[0] == ["Topic", "Partition", "Offset"]
    assert set("".join(shown[1])) <= {"─", "━"}, "a rule below the titles"
    assert shown[2:] == [[topic, "0", "0"], [topic, "1", "3"]]
    assert max(map(len, screen.lines)) <= COLUMNS
    piped = cli(*words)
    assert (piped.stdout, piped.stderr) == (f"{topic}:0:0\n{topic}:1:3\n", "")
    assert [row["offset"] for row in json.loads(cli(*words, "--json").stdout)] == [0, 3]
    assert json.loads("".join(in_terminal(*words, "--json").lines)) == json.loads(cli(*words, "--json").stdout)


@pytest.mark.parametrize(
    "line",
    [
        "topics --list",
        "topics --describe --topic {}",
        "configs --describe --entity-type topics --entity-name {} --all",
        "log-dirs --describe --topic-list {}",
        "groups --list",
        "groups --describe --group {}",
        "features describe",
        "cluster list-endpoints",
    ],
)
def test_nothing_is_wider_than_the_terminal(bootstrap: str, topic: str, line: str) -> None:
    first, *rest = line.format(topic).split()
    address = ["--bootstrap-server", bootstrap]
    words = [first, *rest, *address] if first == "cluster" else [first, *address, *rest]
    screen = in_terminal(*words)
    assert screen.code == 0, screen.raw
    assert any("─" in text or "━" in text for text in screen.lines), screen.raw
    assert max(map(len, screen.lines)) <= COLUMNS


def test_errors_are_broken_between_words_and_say_what_to_do(bootstrap: str) -> None:
    screen = in_terminal("topics", "--list", "--bootstrap-server", "127.0.0.1:1")
    assert screen.code == 1
    assert "Traceback" not in screen.raw
    assert max(map(len, screen.lines)) < COLUMNS
    assert " ".join(screen.lines).strip() == (
        "Error: no broker answers at 127.0.0.1:1 (connection refused). Start one with `barnabas start`, or name "
        "another with --bootstrap-server HOST:PORT."
    )
    misspelt = in_terminal("topicz", "--list")
    assert misspelt.code == 2
    assert "Did you mean `barnabas topics`?" in misspelt.raw
