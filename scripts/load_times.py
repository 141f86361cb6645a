"""Measures `barnabas load` of a small topic: `python scripts/load_times.py [--against CHECKOUT]`.

First from typing to done: seconds, and seconds of processor time of the command and all that it starts. Then, with
`--every`, the processor time of a round that finds nothing. With `--against`, the same of another checkout of this
repository that has an environment of its own, by turns, since other work on the machine disturbs both alike.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import resource
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from bench.measure import cpu_seconds  # noqa: E402
from tests.support.processes import Process, free_port  # noqa: E402 - after the path
from tests.support.waiting import wait_until  # noqa: E402

from barnabas import Producer  # noqa: E402
from barnabas.clients import Admin  # noqa: E402

RECORDS: Final = 1_000
PR_SET_CHILD_SUBREAPER: Final = 36
EVERY_SECONDS: Final = 0.25
SETTLE_SECONDS: Final = 5.0
IDLE_SECONDS: Final = 15.0


class Ran(NamedTuple):
    """One load."""

    seconds: float
    cpu: float


def command(checkout: Path) -> str:
    """The program of a checkout."""
    return str(checkout / ".venv" / "bin" / "barnabas")


def load_once(words: list[str]) -> Ran:
    """Load to the end, in a process of its own that waits for all that the command starts."""
    child = [sys.executable, str(Path(__file__)), "--measured", json.dumps(words)]
    return Ran(*json.loads(subprocess.run(child, check=True, capture_output=True, text=True).stdout))


def run_measured(words: list[str]) -> None:
    """Run a command, and print its seconds and those of processor time.

    Java outlives the command for a moment: it becomes our child then, and its time is counted too.
    """
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    began = time.perf_counter()
    loading = subprocess.run(words, check=False, capture_output=True, text=True)
    seconds = time.perf_counter() - began
    if loading.returncode:
        raise SystemExit(loading.stderr)
    with suppress(ChildProcessError):
        while True:
            os.waitpid(-1, 0)
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    print(json.dumps([seconds, used.ru_utime + used.ru_stime]))


def idle_cpu(words: list[str], table: Path, every: float) -> float:
    """Processor seconds in a second, of a load that has loaded all and looks for more at this interval."""
    child = subprocess.Popen([*words, "--every", f"{every * 1000:.0f}ms"], stderr=subprocess.DEVNULL)
    try:
        wait_until(lambda: any(table.rglob("*.parquet")), "the first commit", 120)
        time.sleep(SETTLE_SECONDS)
        began, before = time.monotonic(), cpu_seconds(child.pid)
        time.sleep(IDLE_SECONDS)
        return (cpu_seconds(child.pid) - before) / (time.monotonic() - began)
    finally:
        child.send_signal(signal.SIGINT)
        child.wait(60)


def main() -> None:
    """Start a broker, and load from it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--against", type=Path, help="another checkout, with its .venv")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--format", default="parquet", choices=["parquet", "delta", "iceberg"])
    parser.add_argument("--idle", action="store_true", help="only the rounds of --every")
    parser.add_argument("--start", action="store_true", help="only from typing to done")
    options = parser.parse_args()
    checkouts = {"this": ROOT} | ({"against": options.against} if options.against else {})
    with tempfile.TemporaryDirectory() as folder:
        here, port = Path(folder), free_port()
        words = [command(ROOT), "start", "--data", str(here / "data"), "--listen", f"127.0.0.1:{port}"]
        with Process("broker", words, here / "broker.log") as broker:
            wait_until(lambda: " is ready on " in broker.output(), "the broker", 30)
            bootstrap = f"127.0.0.1:{port}"
            with Admin(bootstrap) as admin:
                admin.create_topic("small", 3)
            with Producer(bootstrap) as producer:
                for number in range(RECORDS):
                    producer.send("small", f"value {number}")
            measure(checkouts, bootstrap, here, options)


def measure(checkouts: dict[str, Path], bootstrap: str, here: Path, options: argparse.Namespace) -> None:
    """Load in turns, and print what it took."""

    def words(name: str, table: Path) -> list[str]:
        to = ["--to", str(table), "--format", options.format, "--name", table.name]
        return [command(checkouts[name]), "load", "small", *to, "--bootstrap-server", bootstrap]

    if not options.idle:
        ran: dict[str, list[Ran]] = {name: [] for name in checkouts}
        for number in range(options.runs + 1):
            for name in checkouts:
                found = load_once(words(name, here / f"{name}-{number}"))
                print(f"{name:8} run {number}: {found.seconds:.2f} s, {found.cpu:.2f} s of processor time", flush=True)
                if number:  # the first one brings files into memory
                    ran[name].append(found)
        for name, runs in ran.items():
            seconds, cpu = (
                statistics.median(each.seconds for each in runs),
                statistics.median(each.cpu for each in runs),
            )
            print(f"{name:8} typing to done: median {seconds:.2f} s, {cpu:.2f} s of processor time")
    if not options.start:
        for name in checkouts:
            often, never = here / f"{name}-often", here / f"{name}-never"
            without = idle_cpu(words(name, never), never, 3600)
            a_round = (idle_cpu(words(name, often), often, EVERY_SECONDS) - without) * EVERY_SECONDS
            print(f"{name:8} round without records: {a_round * 1000:.1f} ms; a second without: {without * 1000:.1f} ms")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--measured"]:
        run_measured(json.loads(sys.argv[2]))
    else:
        main()
