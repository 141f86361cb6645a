"""Clients that push their metrics, in a browser: a real broker sends them on, real clients write them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from confluent_kafka import Consumer, Producer

from barnabas.testing.broker import Broker
from tests.support.otlp import gauge, point, request

if TYPE_CHECKING:
    from tests.support.consoles import Browser, ConsoleProcess

PUSH_MS = 200


def test_clients_are_seen_searched_and_opened(browser: Browser, console: ConsoleProcess) -> None:
    config = {"telemetry.otlp.endpoint": f"{console.address}/v1/metrics", "telemetry.interval.ms": PUSH_MS}
    with Broker(config) as broker:
        server = {"bootstrap.servers": broker.bootstrap_servers}
        producer = Producer({**server, "client.id": "till <b>7</b>"})
        consumer = Consumer({**server, "client.id": "reader", "group.id": "readers"})
        try:
            producer.produce("told", b"x")
            consumer.subscribe(["told"])
            browser.open("/clients")
            browser.wait_for("till <b>7</b>".replace(" ", "_"), "tbody")
            browser.wait_for("rdkafka-2", "tbody")
            browser.wait_for("127.0.0.1", "tbody")
            browser.wait_for("producer", "tbody")
            consumer.poll(0)
            browser.wait_for("reader", "tbody")
            clients = (
                "return [...document.querySelectorAll('tbody a[href^=\"/clients/\"]')].map((each) => each.innerText)"
            )
            assert [each for each in browser.run(clients) if each != "shown-client"] == ["reader", "till_<b>7</b>"]
            assert browser.run("return document.querySelector('th[aria-sort]').innerText") == "Client"
            browser.type("input[type=search]", "till")
            browser.wait_until_gone("reader", "tbody")
            browser.click("till_<b>7</b>", "tbody a")
            browser.wait_for("till_<b>7</b>", "h1")
            browser.wait_for("producer.node.request.latency.avg", "tbody")
            browser.wait_for("User:ANONYMOUS")
            browser.type("input[type=search]", "no such metric")
            browser.wait_for("0 of", ".tools")
        finally:
            consumer.close()
            producer.flush(10)


def test_what_is_no_push_disturbs_nobody(console: ConsoleProcess) -> None:
    """The door itself is tried in tests/unit; this is that it is there, behind the console's own."""

    def push(body: bytes, **headers: str) -> int:
        answer = console.push(body, **headers)
        assert "set-cookie" not in answer.headers
        return answer.status

    fine = request(gauge("org.apache.kafka.producer.record.send.rate", point(1.0)))
    assert push(b"\xff" * 1000) == 400
    assert push(b"x", **{"content-length": str(9 << 20)}) == 413
    assert push(fine, host="evil.example.com") == 421
    assert push(fine, origin=console.address) == 403
    assert push(fine) == 200
    assert console.ask("GET", "/api/clients/00000000-0000-0000-0000-000000000009").json["records"] == 1.0
    assert console.ask("GET", "/api/clients/nobody").status == 404
    assert console.ask("GET", "/api/clients").json["taking"]
