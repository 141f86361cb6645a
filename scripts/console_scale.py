"""Measures the console and the metrics of a large cluster: `python scripts/console_scale.py`.

10,000 topics, 1,000 groups with offsets in ten topics each, and a topic with ten million records, of which a filter
finds a few. A real browser opens the pages. It prints a line for each figure, those of docs/console.md and
docs/metrics.md. Needs chromium and its driver, as `make test` does, 2 GB of disk, and some minutes.
"""

from __future__ import annotations

import argparse
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from confluent_kafka import Producer  # noqa: E402 - after the path
from confluent_kafka.admin import AdminClient, NewTopic  # noqa: E402
from tests.support.consoles import Browser, ConsoleProcess, running_browser, running_console  # noqa: E402
from tests.support.processes import Process, free_port  # noqa: E402
from tests.support.waiting import wait_until  # noqa: E402

from barnabas.clients import Admin  # noqa: E402
from barnabas.model.ids import TopicPartition  # noqa: E402

LARGE: Final = "large"
AT_ONCE: Final = 500
"""Topics that are made by one request."""
SCRAPING: Final = "import sys, urllib.request as u\nwhile True: u.urlopen(sys.argv[1]).read()"
"""A process of its own: who measures must not do both."""
PULSES: Final = 1_500
"""Records that are sent one by one to see how long each takes."""


def tell(name: str, value: str) -> None:
    """Print a figure."""
    print(f"{name:<64} {value}", flush=True)


def fill(bootstrap: str, topics: int, groups: int, records: int) -> None:
    """Make the topics, groups and records."""
    names = [f"topic-{number:05}" for number in range(topics)]
    with Admin(bootstrap, timeout=120) as admin:
        began = time.monotonic()
        kafka = AdminClient({"bootstrap.servers": bootstrap})
        for at in range(0, topics, AT_ONCE):
            made = kafka.create_topics([NewTopic(name, 1, 1) for name in names[at : at + AT_ONCE]], request_timeout=120)
            for each in made.values():
                each.result(120)
        admin.create_topic(LARGE, 4, 1)
        tell(f"{topics:,} topics made in", f"{time.monotonic() - began:.1f} s")
        began = time.monotonic()
        for number in range(groups):
            read = {TopicPartition(names[(number * 10 + each) % topics], 0): 0 for each in range(10)}
            admin.commit_group_offsets(f"group-{number:04}", read)
        tell(f"{groups:,} groups made in", f"{time.monotonic() - began:.1f} s")
    began = time.monotonic()
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 50, "queue.buffering.max.messages": 500_000})
    for number in range(records):
        value = b'{"id":%d,"country":"%s","total":%d}' % (number, (b"AT", b"CH", b"DE")[number % 3], number % 1_000_003)
        while True:
            try:
                producer.produce(LARGE, value)
                break
            except BufferError:
                producer.poll(0.1)
        if number % 10_000 == 0:
            producer.poll(0)
    producer.flush()
    tell(f"{records:,} records sent in", f"{time.monotonic() - began:.1f} s")


def pulse(bootstrap: str) -> float:
    """The p99 of sending one record after the other, in milliseconds."""
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0, "acks": "all"})
    times = []
    for number in range(PULSES):
        began = time.perf_counter()
        producer.produce("topic-00000", str(number))
        producer.flush()
        times.append((time.perf_counter() - began) * 1000)
    return statistics.quantiles(times, n=100)[98]


def scrapes(bootstrap: str, metrics: str) -> None:
    """How long scrapes take, and what a producer notices of them."""

    def scrape() -> tuple[float, int]:
        began = time.monotonic()
        with urllib.request.urlopen(metrics) as answer:
            size = len(answer.read())
        return time.monotonic() - began, size

    scrape()
    took = [scrape() for _ in range(7)]
    times = [each[0] for each in took]
    tell("a scrape takes (median, worst of 7)", f"{statistics.median(times):.2f} s, {max(times):.2f} s")
    tell("a scrape has", f"{took[0][1] / 1e6:.1f} MB")
    pulse(bootstrap)
    alone, beside = [], []
    for _ in range(5):
        alone.append(pulse(bootstrap))
        with subprocess.Popen([sys.executable, "-c", SCRAPING, metrics]) as scraping:
            beside.append(pulse(bootstrap))
            scraping.kill()
    tell("a producer's p99 without scrapes (median of 5)", f"{statistics.median(alone):.2f} ms")
    tell("... while one scrape follows another without a pause", f"{statistics.median(beside):.2f} ms")


def paint(browser: Browser) -> float:
    """Seconds from the beginning of the navigation to the first contentful paint."""
    script = "return performance.getEntriesByName('first-contentful-paint')[0]?.startTime"
    found = wait_until(lambda: browser.run(script), "a first paint")
    return float(found) / 1000


def tab_seconds(browser: Browser) -> float:
    """Processor time of the tab's main thread since it opened."""
    found = browser.driver.execute_cdp_cmd("Performance.getMetrics", {})["metrics"]
    return float(next(each["value"] for each in found if each["name"] == "TaskDuration"))


def process_seconds(process: Process) -> float:
    """Processor time of a process since its start."""
    words = Path(f"/proc/{process.pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")


def pages(browser: Browser, console: ConsoleProcess, topics: int, groups: int) -> None:
    """How long the lists take."""
    browser.driver.execute_cdp_cmd("Performance.enable", {"timeDomain": "threadTicks"})
    for path, rows in (("/api/topics", topics), ("/api/groups", groups), ("/api/overview", 0)):
        console.ask("GET", path)
        began = time.monotonic()
        answer = console.ask("GET", path)
        assert answer.status == 200, answer.body[:300]
        tell(
            f"GET {path} ({rows:,} rows)" if rows else f"GET {path}",
            f"{time.monotonic() - began:.2f} s, {len(answer.body):,} B",
        )
    for page, wanted in (("/", "Topics"), ("/topics", "topic-00000"), ("/groups", "group-0000")):
        began = time.monotonic()
        browser.open(page)
        browser.wait_for(wanted, "main", 120)
        tell(f"{page}: first paint, and its content", f"{paint(browser):.2f} s, {time.monotonic() - began:.2f} s")
    browser.open("/topics")
    browser.wait_for("topic-00000", "main", 120)
    began, used = time.monotonic(), tab_seconds(browser)
    browser.type("input[type=search]", "topic-09876"[: 11 if topics > 9876 else 8])
    browser.wait_until_gone("topic-00001", "tbody")
    tell("searching the list of topics, key by key", f"{time.monotonic() - began:.2f} s")
    tell("... processor time of the tab for it", f"{tab_seconds(browser) - used:.2f} s")


def search(browser: Browser, console: ConsoleProcess, records: int) -> None:
    """Filter all records, and stop a filter."""
    found = records // 1_000_003 + (records % 1_000_003 > 777_777)
    page = f"/topics/{LARGE}/messages?from=oldest&records=100000000&seconds=3600&filter=value.total%20%3D%3D%20"
    browser.open(f"{page}777777")
    began, used = time.monotonic(), process_seconds(console.process)
    wait_until(lambda: "That is all." in browser.text(".scan"), "the end of a search", 3600)
    tell(f"a filter over {records:,} records, {found} of which fit", f"{time.monotonic() - began:.1f} s")
    tell("... processor time of the console for it", f"{process_seconds(console.process) - used:.0f} s")
    tell("... of which the page says", " ".join(browser.text(".scan").split()))
    browser.open(f"{page}-1")
    wait_until(lambda: re.search(r"[1-9]\d\d,\d{3} looked at", browser.text(".scan")), "a search that is under way", 60)
    began = time.monotonic()
    browser.click("Stop")
    browser.wait_for("Stopped.", ".scan")
    tell("a search is stopped within", f"{time.monotonic() - began:.2f} s")


def main() -> None:
    """Measure everything."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--topics", type=int, default=10_000)
    parser.add_argument("--groups", type=int, default=1_000)
    parser.add_argument("--records", type=int, default=10_000_000)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as made:
        folder, port = Path(made), free_port()
        metrics = free_port()
        words = [sys.executable, "-m", "barnabas.cli.main", "start", "--data", str(folder / "data")]
        words += ["--listen", f"127.0.0.1:{port}", "--metrics", str(metrics)]
        with Process("broker", words, folder / "broker.log") as broker:
            wait_until(lambda: " is ready on " in broker.output(), "the broker", 30)
            bootstrap = f"127.0.0.1:{port}"
            fill(bootstrap, asked.topics, asked.groups, asked.records)
            scrapes(bootstrap, f"http://127.0.0.1:{metrics}/metrics")
            with running_console(folder, bootstrap) as console, running_browser() as browser:
                browser.address = console.address
                pages(browser, console, asked.topics, asked.groups)
                search(browser, console, asked.records)
                memory = Path(f"/proc/{console.process.pid}/status").read_text(encoding="ascii")
                tell(
                    "memory of the console",
                    " ".join(next(line for line in memory.splitlines() if "VmHWM" in line).split()[1:]),
                )


if __name__ == "__main__":
    main()
