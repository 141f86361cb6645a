"""People log in with an OpenID provider, whose token the console passes on to the cluster."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from tests.support.consoles import Browser, ConsoleProcess, running_console
from tests.support.provider import AUDIENCE, CLIENT, SECRET, Provider, running_provider
from tests.support.sasl import login_broker
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="module")
def provider() -> Iterator[Provider]:
    with running_provider() as provider:
        yield provider


@pytest.fixture(scope="module")
def oidc_console(provider: Provider, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ConsoleProcess]:
    folder = tmp_path_factory.mktemp("oidc")
    (keys := folder / "keys.json").write_text(provider.keys)
    (secret := folder / "secret").write_text(f"{SECRET}\n")
    settings = {
        "sasl.enabled.mechanisms": "OAUTHBEARER",
        "sasl.oauthbearer.jwks.endpoint.url": keys.as_uri(),
        "org.apache.kafka.sasl.oauthbearer.allowed.urls": keys.as_uri(),
        "sasl.oauthbearer.expected.issuer": provider.issuer,
        "sasl.oauthbearer.expected.audience": AUDIENCE,
    }
    options = ["--oidc-issuer", provider.issuer, "--oidc-client-id", CLIENT, "--oidc-client-secret-file", str(secret)]
    with (
        login_broker(folder, settings) as broker,
        running_console(folder, broker.login_address, *options) as console,
    ):
        yield console


@pytest.fixture
def page(chromium: Browser, oidc_console: ConsoleProcess, provider: Provider) -> Iterator[Browser]:
    provider.refuses, provider.seconds = False, 300
    chromium.address = oidc_console.address
    chromium.resize(1280)
    chromium.driver.execute_cdp_cmd("Network.clearBrowserCookies", {})
    chromium.complaints()
    yield chromium
    assert not chromium.complaints()
    chromium.driver.get("about:blank")


def log_in(page: Browser, provider: Provider) -> None:
    page.click(f"Log in with {provider.issuer.removeprefix('http://')}")
    page.wait_for("Logged in as alice")


def test_somebody_logs_in_looks_changes_and_logs_out(
    page: Browser, provider: Provider, oidc_console: ConsoleProcess
) -> None:
    """Every kind of connection brings the token: to look, to change, to send. The way back leads to the same page."""
    page.open("/topics?internal=1")
    page.wait_for("Log in to the cluster")
    assert page.run("return document.querySelectorAll('input').length") == 0, "the cluster takes no passwords"
    log_in(page, provider)
    page.wait_for("Topics", "h1")
    assert page.run("return location.pathname + location.search") == "/topics?internal=1"
    page.click("Create topic")
    page.type("#field-name", "of-alice")
    page.click("Create", "dialog button")
    page.wait_for("of-alice", "h1")
    page.open("/topics/of-alice/messages")
    page.click("Send a record")
    page.type("#field-value", "by token")
    page.click("Send")
    page.wait_for("offset 0", ".notice")
    cookies = {each["name"]: each for each in page.driver.get_cookies()}
    assert [each["sameSite"] for name, each in cookies.items() if "console" in name] == ["Strict"]
    assert all(each["httpOnly"] for each in cookies.values())
    assert "login" not in " ".join(cookies), "what a login kept is gone"
    page.click("Log out")
    page.wait_for("Log in to the cluster")
    lines = (oidc_console.process.log.parent / "console" / "audit.log").read_text().splitlines()
    noted = [json.loads(line) for line in lines]
    assert [(each["user"], each["action"]) for each in noted] == [
        ("alice", "log in"),
        ("alice", "create topic"),
        ("alice", "send a record to"),
    ]


def test_a_session_lasts_while_its_token_is_renewed_and_no_longer(page: Browser, provider: Provider) -> None:
    provider.seconds = 3
    provider.grants.clear()
    page.open("/topics")
    log_in(page, provider)
    wait_until(lambda: provider.grants.count("refresh_token") >= 2, "the token to be renewed")
    page.wait_for("Logged in as alice")
    provider.answer = {"error": "invalid_grant"}
    try:
        page.wait_for("Log in to the cluster")
    finally:
        provider.answer = None


def test_a_refusal_is_told_and_what_it_says_is_not_run(page: Browser, provider: Provider) -> None:
    provider.refuses = True
    page.open("/")
    page.click(f"Log in with {provider.issuer.removeprefix('http://')}")
    page.wait_for("The provider did not let you in.")
    assert page.run("return window.harmed ?? null") is None
    page.open("/?failed=%3Cscript%3Ewindow.harmed=1%3C/script%3E")
    page.wait_for("Log in to the cluster")
    assert page.run("return window.harmed ?? null") is None


def test_a_token_that_the_cluster_does_not_take_lets_nobody_in(page: Browser, provider: Provider) -> None:
    right, provider.answer = provider.issuer, {"access_token": provider.sign("others"), "expires_in": 60}
    try:
        page.open("/")
        page.click(f"Log in with {right.removeprefix('http://')}")
        page.wait_for("The cluster does not accept the provider's token.")
    finally:
        provider.answer = None


def test_nobody_is_led_elsewhere_or_logged_in_by_another_site(oidc_console: ConsoleProcess) -> None:
    """What was never begun here is not noted: anybody could fill the disk with it."""
    audit = oidc_console.process.log.parent / "console" / "audit.log"
    noted = audit.read_text() if audit.exists() else ""
    for path in (
        "/login/callback",
        "/login/callback?code=x&state=y",
        "/login/callback?code=x&state=&next=https://evil.example",
        "/login/callback?error=x&state=y",
    ):
        answer = oidc_console.ask("GET", path, sec_fetch_site="cross-site")
        assert (answer.status, answer.headers["location"]) == (303, "/?failed=expired")
        assert "barnabas-console" not in answer.headers.get("set-cookie", "")
    assert (audit.read_text() if audit.exists() else "") == noted
    begun = oidc_console.ask("GET", "/login/provider?next=https://evil.example&redirect_uri=https://evil.example")
    assert begun.status == 303
    assert "evil.example" not in begun.headers["location"]
    assert oidc_console.ask("GET", "/login/provider", host="evil.example").status == 421
