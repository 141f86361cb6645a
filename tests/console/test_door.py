"""Which requests get in, and what every answer says to the browser."""

from __future__ import annotations

import http.client
from typing import TYPE_CHECKING

import pytest

from barnabas.clients import Admin
from tests.support.consoles import ConsoleProcess, running_console
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from pathlib import Path

    from barnabas.testing import Cluster


@pytest.fixture(scope="module")
def door(cluster: Cluster) -> str:
    with Admin(cluster.bootstrap_servers) as admin:
        admin.create_topic("door", 1, 3)
    return "door"


def test_every_answer_forbids_what_is_not_the_consoles_own(console: ConsoleProcess) -> None:
    for path in ("/", "/topics/x", "/static/app.js", "/api/session", "/api/nothing", "/static/../server.py"):
        answer = console.ask("GET", path)
        policy = answer.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "script-src 'self'" in policy
        assert "unsafe" not in policy
        assert "require-trusted-types-for 'script'" in policy
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["x-frame-options"] == "DENY"
        assert b"barnabas.console.guard" not in answer.body


DIGITS = "9" * 5000
TOO_MUCH = str(2**70)


@pytest.mark.parametrize(
    "path",
    [
        f"/api/topics/door/records/{DIGITS}/0",
        f"/api/topics/door/records/0/{DIGITS}",
        f"/api/topics/door/records/0/{2**63}",
        f"/api/topics/door/records/{2**31}/0",
        "/api/topics/door/records/5/0",
        f"/api/topics/door/records?from=time&at={TOO_MUCH}",
        f"/api/topics/door/records?positions=0:{TOO_MUCH}",
        f"/api/brokers/{DIGITS}",
        "/api/topics/%00",
        "/static/%00",
        "/static/..%2fserver.py",
    ],
)
def test_an_address_that_means_nothing_is_answered_in_words(console: ConsoleProcess, door: str, path: str) -> None:
    """Numbers that no log has were errors of the console's own, or waited for a leader for ten seconds."""
    answer = console.ask("GET", path)
    assert answer.status in (400, 404) or answer.body.startswith(b"event: failed"), answer


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/api/topics", {"name": "\0"}),
        ("/api/topics", {"name": "\ud800"}),
        ("/api/topics/%00/partitions", {"partitions": 3}),
        ("/api/topics/door/records", {"value": {"text": "x"}, "headers": 5}),
        ("/api/topics/door/records", {"value": {"text": "x"}, "partition": 2**40}),
        ("/api/brokers/cancel", {"topic": "door", "partition": 2**70}),
        ("/api/brokers/move", {"moves": [["door", 2**40, [0]]]}),
        ("/api/brokers/plan", {"brokers": ["0"]}),
        ("/api/login", {"user": "\ud800", "password": "x"}),
    ],
)
def test_a_change_that_means_nothing_is_refused_in_words(
    console: ConsoleProcess, door: str, path: str, body: object
) -> None:
    answer = console.ask("POST", path, body)
    assert answer.status == 400, answer
    assert answer.json["error"]


def test_one_who_looks_too_often_keeps_nobody_else_from_looking(console: ConsoleProcess, door: str) -> None:
    """Streams have no end of their own: one address has so many, and what it stops makes room."""
    follow = f"/api/topics/{door}/records?from=follow"
    opened = [http.client.HTTPConnection("127.0.0.1", console.port, timeout=60) for _ in range(8)]
    try:
        for connection in opened:
            connection.request("GET", follow, headers={"host": f"localhost:{console.port}"})
            assert connection.getresponse().readline() == b"event: progress\n"
        assert b"Too many searches" in console.ask("GET", follow).body
    finally:
        for connection in opened:
            connection.close()
    wait_until(lambda: b"event: done" in console.ask("GET", f"/api/topics/{door}/records").body or None, "room")


def test_searches_that_are_asked_for_at_once_are_counted_too(console: ConsoleProcess, door: str) -> None:
    """They were counted when they began, and looked at some steps before: a burst had more than its share."""
    opened = [http.client.HTTPConnection("127.0.0.1", console.port, timeout=60) for _ in range(24)]
    try:
        for connection in opened:
            path = f"/api/topics/{door}/records?from=follow"
            connection.request("GET", path, headers={"host": f"localhost:{console.port}"})
        first = [connection.getresponse().readline() for connection in opened]
        begun = first.count(b"event: progress\n")
        assert 0 < begun <= 8, "fewer where a search of the test before has not ended yet"
        assert first.count(b"event: failed\n") == len(opened) - begun
    finally:
        for connection in opened:
            connection.close()
    wait_until(lambda: b"event: done" in console.ask("GET", f"/api/topics/{door}/records").body or None, "room")


def test_nobody_logs_in_where_nobody_checks_the_name(console: ConsoleProcess) -> None:
    """Whatever name was given stood in the audit log, with all that was done by it."""
    answer = console.ask("POST", "/api/login", {"user": "admin", "password": "made up"})
    assert answer.status == 409
    assert "set-cookie" not in answer.headers


@pytest.mark.parametrize(
    "host", ["localhost:" + DIGITS, "evil.example", "evil.example:{port}", "localhost:1", "localhost", "", "[::1"]
)
def test_a_host_that_is_not_ours_is_refused(console: ConsoleProcess, host: str) -> None:
    assert console.ask("GET", "/api/overview", host=host.format(port=console.port) or "x").status == 421


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"origin": ""}, 403),
        ({"origin": "null"}, 403),
        ({"origin": "http://evil.example"}, 403),
        ({"origin": "http://localhost:1"}, 403),
        ({"sec_fetch_site": "cross-site"}, 403),
        ({"sec_fetch_site": "same-site"}, 403),
        ({"content_type": "text/plain"}, 415),
        ({"content_type": "application/x-www-form-urlencoded"}, 415),
    ],
)
def test_a_change_from_elsewhere_is_refused(console: ConsoleProcess, headers: dict[str, str], status: int) -> None:
    assert console.ask("POST", "/api/topics", {"name": "from-elsewhere"}, **headers).status == status
    assert console.ask("GET", "/api/topics/from-elsewhere").status == 404


def test_a_page_of_another_site_reads_nothing(console: ConsoleProcess) -> None:
    assert console.ask("GET", "/api/overview", sec_fetch_site="cross-site").status == 403


def test_a_body_that_is_too_large_or_no_json_is_refused(console: ConsoleProcess) -> None:
    assert console.ask("POST", "/api/topics", {"name": "x" * 3_000_000}).status == 413
    assert console.ask("POST", "/api/topics", ["a", "list"]).status == 400
    assert console.ask("POST", "/api/topics", {"name": 1}).status == 400
    assert console.ask("POST", "/api/topics", {"name": "x", "partitions": -1}).status == 400


def test_a_console_that_is_read_only_changes_nothing(cluster: Cluster, tmp_path: Path) -> None:
    with running_console(tmp_path, cluster.bootstrap_servers, "--read-only") as console:
        assert console.ask("GET", "/api/session").json["read_only"] is True
        for method, path in (
            ("POST", "/api/topics"),
            ("DELETE", "/api/topics/orders"),
            ("PATCH", "/api/topics/orders/settings"),
            ("POST", "/api/topics/orders/records"),
        ):
            refused = console.ask(method, path, {"name": "x", "confirm": "orders"})
            assert refused.status == 403
            assert "read-only" in refused.json["error"]


def test_a_console_without_brokers_says_so(tmp_path: Path) -> None:
    with running_console(tmp_path, "127.0.0.1:1") as console:
        answer = console.ask("GET", "/api/overview")
        assert answer.status == 503
        assert "127.0.0.1:1" in answer.json["error"]
