"""Records that want to harm whoever looks at them: nothing of them runs, and nothing hangs."""

from __future__ import annotations

import json
import re
import time
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

import pytest

from barnabas.clients import Admin, Consumer, Producer
from barnabas.model.internal_topics import PIPELINE_METRICS
from tests.support.waiting import fastest

if TYPE_CHECKING:
    from barnabas.testing import Cluster
    from tests.support.consoles import Browser, ConsoleProcess

BIG: Final = 50_000_000
SCRIPT: Final = (
    b'<script>window.harmed = 1</script><img src=x onerror="window.harmed = 2"><a href="javascript:harmed=3">x</a>'
)
SVG: Final = (
    b'<svg xmlns="http://www.w3.org/2000/svg" onload="window.harmed = 4"><script>window.harmed = 5</script></svg>'
)
HOSTILE: Final[dict[str, bytes | None]] = {
    "script": SCRIPT,
    "svg": SVG,
    "script in JSON": json.dumps({SCRIPT.decode(): [SCRIPT.decode()] * 3, "__proto__": {"harmed": 6}}).encode(),
    "controls": bytes(range(32)) * 2 + b"\x1b[31m \x7f text that is longer than that " * 8,
    "directions": "user\u202egnp.exe \u2066 zero\u200bwidth \ufeff".encode(),
    "invalid": b"\xff\xfe\xc3\x28 \xf0\x28\x8c\xbc" * 5,
    "surrogates": b'{"lone": "\\ud800", "raw": "\xed\xa0\x80"}',
    "deep": b'{"a":' * 100_000 + b"1" + b"}" * 100_000,
    "deep and small": b"[" * 900 + b"]" * 900,
    "numbers": b'{"big": 123456789012345678901234567890, "wide": 1e400, "nan": NaN}',
    "many": b"[" + b"1," * 300_000 + b"1]",
    "empty": b"",
    "tombstone": None,
    "large": b'{"large": "' + b"x" * BIG + b'"}',
}


@pytest.fixture(scope="module")
def hostile(cluster: Cluster) -> str:
    with Admin(cluster.bootstrap_servers) as admin:
        admin.create_topic("hostile", 1, 1, configs={"max.message.bytes": str(2 * BIG), "min.insync.replicas": "1"})
    config = {"message.max.bytes": 2 * BIG}
    with Producer(cluster.bootstrap_servers, config=config) as producer:
        for name, value in HOSTILE.items():
            producer.send(
                "hostile", value, key=name, headers=[(SCRIPT.decode(), SCRIPT), ("bytes", b"\xff"), ("", None)]
            )
            producer.flush()
    return "hostile"


def test_hostile_records_are_listed_and_opened(browser: Browser, console: ConsoleProcess, hostile: str) -> None:
    browser.open(f"/topics/{hostile}/messages?limit=200")
    browser.wait_for("That is all.", ".scan")
    assert browser.run("return document.querySelectorAll('.records .row').length") == len(HOSTILE)

    def seconds_of_opening(number: int, name: str) -> float:
        began = time.monotonic()
        browser.find(f".records button[aria-label='Open record {number} of partition 0']").click()
        browser.wait_for(name, ".detail")
        browser.wait_for("Value", ".detail")
        assert browser.run("return [window.harmed, ({}).harmed].filter(Boolean).length") == 0, name
        assert browser.run("return document.querySelectorAll('main script, main img, main svg').length") == 0, name
        assert browser.run("return document.querySelector('.detail').innerText.includes('\\u202e')") is False, name
        browser.find(f".records button[aria-label='Open record {number} of partition 0']").click()
        browser.wait_until_gone("Value", ".detail")
        return time.monotonic() - began

    for number, name in enumerate(HOSTILE):
        assert fastest(lambda: seconds_of_opening(number, name), 5.0) < 5, name  # noqa: B023
    assert console.ask("GET", "/api/session").status == 200


def test_a_large_value_is_cut_on_the_server_and_downloaded_whole(console: ConsoleProcess, hostile: str) -> None:
    offset = list(HOSTILE).index("large")
    shown = console.ask("GET", f"/api/topics/{hostile}/records/0/{offset}")
    assert len(shown.body) < 300_000
    assert shown.json["value"]["cut"]
    whole = console.ask("GET", f"/api/topics/{hostile}/records/0/{offset}/value")
    assert whole.body == HOSTILE["large"]
    assert whole.headers["content-type"] == "application/octet-stream"
    assert whole.headers["content-disposition"].startswith("attachment")
    assert whole.headers["x-content-type-options"] == "nosniff"


@pytest.mark.parametrize("value_format", ["json", "text", "hex", "avro", "protobuf", "number"])
def test_hostile_records_are_read_in_every_format(console: ConsoleProcess, hostile: str, value_format: str) -> None:
    found = console.ask("GET", f"/api/topics/{hostile}/records?limit=200&value={value_format}&key={value_format}")
    assert found.body.count(b'"offset"') == len(HOSTILE)
    assert b"event: done" in found.body


def test_a_filter_goes_over_hostile_records(console: ConsoleProcess, hostile: str) -> None:
    found = console.ask("GET", f"/api/topics/{hostile}/records?limit=200&filter=value.contains(%27script%27)")
    assert b'"found":2' in found.body
    deep = console.ask("GET", f"/api/topics/{hostile}/records?filter={'(' * 3000}")
    assert b"event: failed" in deep.body
    assert console.ask("GET", "/api/session").status == 200


def test_hostile_names_are_texts_on_every_page(browser: Browser, console: ConsoleProcess, cluster: Cluster) -> None:
    """Of groups, clients, transactional ids, users, pipelines and headers: anybody may choose them."""
    name = SCRIPT.decode()
    with Admin(cluster.bootstrap_servers) as admin:
        admin.create_topic("named", 1, 3)
    consumer: Consumer[bytes, bytes] = Consumer(
        cluster.bootstrap_servers, "named", group_id=name, auto_offset_reset="earliest", client_id=name
    )
    producer: Producer[str, str] = Producer(cluster.bootstrap_servers, transactional_id=name)
    report = {
        "query": name,
        "kind": name,
        "topics": [name],
        "steps": [name],
        "sink": name,
        "format": name,
        "group": name,
    }
    letters = {"dead_letters": 1, "letters": [[name, 0, 0]], "letters_table": name}
    try:
        with producer.transaction():
            producer.send("named", "x", headers={name: name})
            producer.flush()
        with Producer(cluster.bootstrap_servers) as reporter:
            reporter.send(PIPELINE_METRICS, json.dumps({**report, **letters, "at": name, "watermark": name}))
        assert next(iter(consumer)) is not None
        consumer.commit()
        assert console.ask("POST", "/api/security/users", {"name": name, "password": "x" * 12}).status in (
            200,
            400,
            404,
        )
        for page, selector in (
            ("/groups", "tbody"),
            (f"/group?id={quote(name)}", "table[aria-label=Members]"),
            ("/transactions", "tbody"),
            ("/pipelines", f"[data-query={json.dumps(name)}]"),
            ("/topics/named/groups", "main"),
            ("/topics/named/messages?partition=0&offset=0", ".detail"),
            ("/security", "main"),
        ):
            browser.open(page)
            if page != "/security":
                browser.wait_for("window.harmed = 1", selector)
            assert browser.run("return window.harmed ?? null") is None, page
            assert browser.run("return document.querySelectorAll('main script, main img').length") == 0, page
            links = "return [...document.querySelectorAll('a')].map((each) => each.getAttribute('href'))"
            assert all(re.match(r"/(?!/)|#", link) for link in browser.run(links)), page
    finally:
        consumer.close()
        producer.close(5)
