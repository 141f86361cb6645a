"""What is kept of what Java says, and how it is ended."""

from __future__ import annotations

import os
import socket
import socketserver
import subprocess
import sys
import time
from types import SimpleNamespace

import pytest
from pyspark import SparkContext

from barnabas.pipelines.errors import SparkNotStarted
from barnabas.pipelines.spark import java

OF_PYSPARK = {**os.environ, "_PYSPARK_DRIVER_CONN_INFO_PATH": "/nowhere"}
"""What PySpark starts Java with."""
DEAF = """
import signal, subprocess, sys
signal.signal(signal.SIGTERM, signal.SIG_IGN)
child = subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"])
print(child.pid, flush=True)
signal.pause()
"""


def test_why_java_ended_is_told_without_what_it_always_says() -> None:
    reader, writer = os.pipe()
    heard = java._StderrReader(reader)
    with os.fdopen(writer, "w") as stderr:
        stderr.write(
            'WARNING: Using incubator modules: jdk.incubator.vector\n\nException in thread "main" No such master.\n'
            "\tat org.apache.spark.deploy.SparkSubmit.main(SparkSubmit.scala)\n\t... 7 more\nRun with --help\n"
        )
    assert heard.reason() == 'Exception in thread "main" No such master; Run with --help'


def test_why_java_ended_is_told_in_sentences() -> None:
    told = str(SparkNotStarted.because("Java gateway process exited before sending its port number."))
    assert told.startswith("Spark could not start: Java gateway process exited before sending its port number. Is Java")


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells of children")
def test_what_does_not_end_when_it_is_asked_is_killed_with_its_children() -> None:
    child = subprocess.Popen([sys.executable, "-c", DEAF], stdout=subprocess.PIPE, text=True, env=OF_PYSPARK)
    assert child.stdout is not None
    below = int(child.stdout.readline())
    began = time.monotonic()
    java.end_java(0.1)
    assert time.monotonic() - began < 10
    assert child.wait(10) == -9
    assert not java._runs(below)
    child.stdout.close()


def test_other_children_of_this_process_are_left_alone() -> None:
    child = subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"])
    try:
        java.end_java(0.1)
        assert child.poll() is None
    finally:
        child.kill()
        child.wait()


def test_lines_that_java_drops_as_it_ends_are_not_spoken_of(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    server = socketserver.TCPServer(("127.0.0.1", 0), _Dropped)
    monkeypatch.setattr(SparkContext, "_active_spark_context", SimpleNamespace(_accumulatorServer=server))
    java.end_java(0)
    with server, socket.create_connection(server.socket.getsockname()):
        server.handle_request()
    assert capfd.readouterr().err == ""


class _Dropped(socketserver.BaseRequestHandler):
    def handle(self) -> None:
        raise EOFError
