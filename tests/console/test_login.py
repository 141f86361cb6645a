"""A console of a cluster that asks for a login: people see and do what the cluster lets them."""

from __future__ import annotations

import http.client
import json
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

    from barnabas.testing.secure import KafkaSecure, SecureUser
    from tests.support.consoles import Browser, ConsoleProcess


@pytest.fixture(scope="module")
def alice(secure: KafkaSecure) -> SecureUser:
    alice = secure.user("alice", "the-password-of-alice")
    for topic in ("of-alice", "of-others"):
        secure.admin.create_topic(topic, 1, 1)
    secure.allow(alice, "Read", "Describe", topic="of-alice")
    return alice


def test_a_user_logs_in_and_sees_what_is_his(chromium: Browser, guarded: ConsoleProcess, alice: SecureUser) -> None:
    chromium.address = guarded.address
    chromium.open("/topics")
    chromium.wait_for("Log in with a user of the cluster")
    chromium.type("#user", "alice")
    chromium.type("#password", "wrong")
    chromium.click("Log in")
    chromium.wait_for("the password is wrong, or there is no such user", ".form-error")
    chromium.type("#password", alice.password)
    chromium.click("Log in")
    chromium.wait_for("of-alice", "tbody")
    assert "of-others" not in chromium.text()
    chromium.wait_for("alice", ".who")
    chromium.click("Log out")
    chromium.wait_for("Log in with a user of the cluster")


def test_the_console_asks_in_the_name_of_the_user(
    guarded: ConsoleProcess, secure: KafkaSecure, alice: SecureUser
) -> None:
    login = guarded.ask("POST", "/api/login", {"user": "alice", "password": alice.password})
    kept = login.headers["set-cookie"]
    assert "HttpOnly" in kept
    assert "SameSite=strict" in kept
    cookie = kept.partition(";")[0]
    assert guarded.ask("GET", "/api/topics/of-alice", cookie=cookie).status == 200
    assert guarded.ask("GET", "/api/topics/of-others", cookie=cookie).status == 404
    refused = guarded.ask("POST", "/api/topics", {"name": "forbidden"}, cookie=cookie)
    assert refused.status == 403
    assert guarded.ask("GET", "/api/history?name=records:of-others", cookie=cookie).status == 404
    assert guarded.ask("GET", "/api/security", cookie=cookie).json["users"]["refusal"]
    assert guarded.ask("GET", "/api/clients", cookie=cookie).status == 403
    secure.allow(alice, "Describe", cluster=True)
    assert guarded.ask("GET", "/api/clients", cookie=cookie).json["taking"] is False
    assert guarded.ask("POST", "/api/logout", cookie=cookie).status == 200
    assert guarded.ask("GET", "/api/topics/of-alice", cookie=cookie).status == 401


def test_a_search_ends_with_its_session(guarded: ConsoleProcess, alice: SecureUser) -> None:
    """Who follows a topic in one window and logs out in another went on to read, with a password that was kept."""
    login = guarded.ask("POST", "/api/login", {"user": "alice", "password": alice.password})
    cookie = login.headers["set-cookie"].partition(";")[0]
    following = http.client.HTTPConnection("127.0.0.1", guarded.port, timeout=60)
    try:
        headers = {"host": f"localhost:{guarded.port}", "cookie": cookie}
        following.request("GET", "/api/topics/of-alice/records?from=follow", headers=headers)
        answer = following.getresponse()
        assert answer.readline() == b"event: progress\n"
        assert guarded.ask("POST", "/api/logout", cookie=cookie).status == 200
        assert any(b"Your login is over" in answer.readline() for _ in range(400))
    finally:
        following.close()


def test_a_name_without_end_is_not_noted(guarded: ConsoleProcess) -> None:
    answer = guarded.ask("POST", "/api/login", {"user": "x" * 100_000, "password": "x"})
    assert answer.status == 400
    noted = guarded.process.log.parent / "console" / "audit.log"
    assert not noted.exists() or "x" * 2_000 not in noted.read_text()


@pytest.mark.parametrize(
    "path", ["overview", "topics", "groups", "brokers", "clients", "security", "history?name=records"]
)
def test_nothing_is_told_without_a_login(guarded: ConsoleProcess, path: str) -> None:
    assert guarded.ask("GET", f"/api/{path}").status == 401
    assert guarded.ask("GET", f"/api/{path}", cookie=f"barnabas-console-{guarded.port}=guessed").status == 401


def test_logins_are_noted_and_passwords_are_nowhere(guarded: ConsoleProcess, alice: SecureUser) -> None:
    guarded.ask("POST", "/api/login", {"user": "alice", "password": alice.password})
    folder: Path = guarded.process.log.parent
    entries = [json.loads(line) for line in (folder / "console" / "audit.log").read_text().splitlines()]
    assert {"done"} <= {each["outcome"] for each in entries if each["user"] == "alice"}
    for file in folder.rglob("*"):
        if file.is_file():
            assert alice.password.encode() not in file.read_bytes(), file
