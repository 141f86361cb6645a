"""Takes the pictures of the console that the README shows: `python scripts/console_pictures.py`.

A cluster of three brokers with metrics, orders that flow, a group that keeps up and one that lags, a queue and a
pipeline that reports. Needs chromium and its driver, as `make test` does.
"""

from __future__ import annotations

import json
import random
import sys
import tempfile
import threading
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from confluent_kafka import Consumer, Producer  # noqa: E402 - after the path
from tests.support.consoles import Browser, running_browser, running_console  # noqa: E402
from tests.support.processes import Process, free_port  # noqa: E402
from tests.support.waiting import wait_until  # noqa: E402

from barnabas.clients import Admin  # noqa: E402
from barnabas.model.internal_topics import PIPELINE_METRICS  # noqa: E402

PICTURES: Final = ROOT / "docs" / "images"
COUNTRIES: Final = ("AT", "CH", "DE", "FR", "IT")
FLOW_SECONDS: Final = 200.0
"""Long enough for charts to have a line."""


def brokers(folder: Path, port: int) -> Process:
    """Three brokers on ports that follow each other, with metrics."""
    words = [sys.executable, "-m", "barnabas.cli.main", "start", "--brokers", "3", "--data", str(folder / "data")]
    process = Process(
        "brokers", [*words, "--listen", f"127.0.0.1:{port}", "--metrics", str(port + 10)], folder / "brokers.log"
    )
    wait_until(lambda: "3 brokers are ready on " in process.output(), "three brokers")
    return process


def flow(bootstrap: str, over: threading.Event) -> None:
    """Orders, payments and clicks, more and fewer of them; a pipeline that reports each second."""
    chance, number = random.Random(1), 0
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 20, "log_level": 0})
    while not over.is_set():
        second = int(time.time())
        for _ in range(chance.randint(150, 400)):
            number += 1
            customer = f"c{chance.randint(1, 900)}"
            order = {
                "id": number,
                "customer": customer,
                "country": chance.choice(COUNTRIES),
                "total": round(chance.lognormvariate(3.5, 0.8), 2),
                "items": [{"sku": f"s{chance.randint(1, 80)}", "count": chance.randint(1, 4)}],
            }
            producer.produce("orders", json.dumps(order), key=customer, headers={"source": "shop"})
            if chance.random() < 0.6:
                producer.produce("payments", json.dumps({"order": number, "paid": order["total"]}), key=str(number))
            producer.produce("clicks", json.dumps({"page": f"/p/{chance.randint(1, 80)}"}), key=customer)
        report = {
            "query": "shop.revenue",
            "kind": "pipeline",
            "batch": second,
            "at": datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "seconds": round(chance.uniform(0.6, 1.4), 2),
            "rows": chance.randint(150, 400),
            "rows_per_second": round(chance.uniform(200, 420), 1),
            "lag": chance.randint(0, 300),
            "files": 3,
            "dead_letters": int(chance.random() < 0.02),
            "topics": ["orders", "payments"],
            "steps": ["paid orders", "revenue by hour and country"],
            "sink": "lake/revenue",
            "format": "delta",
        }
        producer.produce(PIPELINE_METRICS, json.dumps(report))
        producer.poll(0)
        over.wait(1)
    producer.flush(10)


def read(bootstrap: str, group: str, topic: str, most_per_second: int, over: threading.Event) -> None:
    """A member of a group, which keeps up or does not."""
    settings = {"bootstrap.servers": bootstrap, "group.id": group, "auto.offset.reset": "earliest", "log_level": 0}
    consumer = Consumer({**settings, "client.id": f"{group}-1"})
    consumer.subscribe([topic])
    while not over.is_set():
        consumer.consume(most_per_second, 1.0)
    consumer.close()


def take(browser: Browser, path: str, waits_for: str, name: str, *, scheme: str = "light", height: int = 820) -> None:
    """One picture of one page."""
    browser.prefer(scheme)
    browser.resize(1280, height)
    browser.open(path)
    browser.wait_for(waits_for)
    browser.run("document.querySelector('.segments button')?.click()")
    time.sleep(3)  # until charts and rates are drawn
    browser.run("return document.fonts.ready.then(() => true)")
    browser.driver.save_screenshot(str(PICTURES / name))
    print(f"{PICTURES / name}: {(PICTURES / name).stat().st_size:,} bytes")


def main() -> None:
    """Have something to show, and show it."""
    over = threading.Event()
    port = free_port()
    bootstrap = f"127.0.0.1:{port}"
    with (
        tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder,
        brokers(Path(folder), port) as cluster,
        running_console(Path(folder), bootstrap) as console,
        running_browser() as browser,
    ):
        with Admin(bootstrap) as admin:
            for topic, partitions in (("orders", 6), ("payments", 3), ("clicks", 12), (PIPELINE_METRICS, 1)):
                admin.create_topic(topic, partitions=partitions, replication_factor=3)
        workers = [
            threading.Thread(target=flow, args=(bootstrap, over)),
            threading.Thread(target=read, args=(bootstrap, "invoices", "payments", 1000, over)),
            threading.Thread(target=read, args=(bootstrap, "recommendations", "clicks", 120, over)),
        ]
        for worker in workers:
            worker.start()
        try:
            browser.address = console.address
            browser.open("/")
            time.sleep(FLOW_SECONDS)
            take(browser, "/", "Records in", "console-overview.png")
            take(browser, "/topics/orders/messages?filter=value.total%20%3E%20100", '"country"', "console-messages.png")
            take(browser, "/pipelines", "shop.revenue", "console-pipelines.png", scheme="dark", height=620)
        finally:
            over.set()
            for worker in workers:
                worker.join()
            cluster.stop()


if __name__ == "__main__":
    main()
