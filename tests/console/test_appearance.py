"""How pages look: readable by everybody, in light and dark, on a telephone."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

import barnabas.console
from barnabas.clients import Admin, Producer
from tests.support.consoles import Keys
from tests.support.otlp import gauge, point, request
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from barnabas.testing import Cluster
    from tests.support.consoles import Browser, ConsoleProcess

STATIC: Final = Path(barnabas.console.__file__).parent / "static"
CLIENT: Final = "00000000-0000-0000-0000-000000000001"
PAGES: Final = {
    "/": "Nothing is wrong",
    "/topics": "shown",
    "/topics/shown": "in sync",
    "/topics/shown/settings": "retention.ms",
    "/topics/shown/groups": "No group has read",
    "/topics/shown/messages?partition=0&offset=0": "not compressed",
    "/groups": "Groups",
    "/group?id=traffic-readers": "traffic-0",
    "/clients": "shown-client",
    f"/clients/{CLIENT}": "producer.record.send.rate",
    "/brokers": "Nothing is being moved",
    "/brokers/0": "Largest partitions",
    "/brokers/move": "Work out a plan",
    "/pipelines": "Pipelines and tables",
    "/transactions": "Transactions",
    "/security": "Quotas",
    "/retention": "shown",
}


DIALOGS: Final = {
    "/topics": ["Create topic"],
    "/topics/shown": ["Add partitions", "Delete records", "Delete topic"],
    "/topics/shown/settings": ["Change"],
    "/topics/shown/messages?partition=0&offset=0": ["Send a record", "Send again"],
    "/group?id=traffic-readers": ["Reset offsets", "Delete group"],
    "/brokers": ["Elect preferred leaders", "Keys"],
    "/security": ["Add user", "Add ACL", "Set quota"],
}
"""Pages, and the buttons on them that open a dialog."""
MOST_SHIFT: Final = 0.01
"""Of what a browser counts as a jump of the layout: below 0.1 it is called good."""


@pytest.fixture(scope="module")
def shown(cluster: Cluster, console: ConsoleProcess) -> str:
    with Admin(cluster.bootstrap_servers) as admin, Producer(cluster.bootstrap_servers) as producer:
        admin.create_topic("shown", 1, 3)
        producer.send("shown", '{"a": [1, true, null, "text"]}', key="k", headers={"h": "v"})
    pushed = request(gauge("org.apache.kafka.producer.record.send.rate", point(1.0)))
    named = {"x-kafka-client-instance-id": CLIENT, "x-kafka-client-id": "shown-client"}
    assert console.push(pushed, **named).status == 200
    return "shown"


def find_violations(browser: Browser, scheme: str = "light", within: str = "html") -> list[tuple[str, str, list[str]]]:
    """What axe-core finds serious on the page in a theme, and where."""
    browser.prefer(scheme)
    wait_until(lambda: not browser.run("return document.getAnimations().length"), "colours to have changed")
    if not browser.run("return 'axe' in window"):
        browser.run(files("axe_core_python").joinpath("axe.min.js").read_text(encoding="utf-8"))
    found: dict[str, Any] = browser.driver.execute_async_script(
        "const [within, done] = arguments; axe.run(within, {resultTypes: ['violations']}).then(done)", within
    )
    bad = [each for each in found["violations"] if each["impact"] in ("serious", "critical")]
    return [(scheme, each["id"], [node["html"] for node in each["nodes"]]) for each in bad]


def layout_shift(browser: Browser) -> float:
    """How much has jumped since the page was loaded, beside what people did."""
    shift: float = browser.driver.execute_async_script(
        "const done = arguments[0]; let sum = 0;"
        "new PerformanceObserver((list) => {"
        "  for (const each of list.getEntries()) if (!each.hadRecentInput) sum += each.value;"
        "}).observe({type: 'layout-shift', buffered: true});"
        "requestAnimationFrame(() => requestAnimationFrame(() => setTimeout(() => done(sum))))"
    )
    return shift


def is_within(browser: Browser) -> bool:
    """Whether nothing sticks out to the side."""
    return bool(browser.run("return document.documentElement.scrollWidth <= innerWidth"))


@pytest.mark.parametrize("page", PAGES)
def test_a_page_is_readable_in_light_and_dark_and_fits_into_400_pixels(browser: Browser, shown: str, page: str) -> None:
    for width in (1280, 400):
        browser.resize(width)
        browser.open(page)
        browser.wait_for(PAGES[page], "main")
        assert layout_shift(browser) < MOST_SHIFT, width
        for scheme in ("light", "dark"):
            assert not find_violations(browser, scheme), width
        browser.prefer("light")
    assert is_within(browser)
    assert browser.run("return getComputedStyle(document.querySelector('.side-body')).display") == "none"
    browser.click("Menu")
    assert browser.run("return getComputedStyle(document.querySelector('.side-body')).display") == "flex"


@pytest.mark.parametrize("page", DIALOGS)
def test_a_dialog_is_readable_in_light_and_dark_and_fits_into_400_pixels(
    browser: Browser, shown: str, page: str
) -> None:
    browser.open(page)
    browser.wait_for(PAGES[page], "main")
    for label in DIALOGS[page]:
        browser.resize(1280)
        browser.click(label)
        browser.find("dialog[open]")
        assert browser.run("return document.querySelector('dialog').contains(document.activeElement)")
        for scheme in ("light", "dark"):
            assert not find_violations(browser, scheme, "dialog"), label
        browser.resize(400)
        wait_until(lambda: browser.run("return innerWidth") == 400, "the page to be narrow")
        assert is_within(browser), label
        assert browser.run("const box = document.querySelector('dialog'); return box.scrollWidth <= box.clientWidth"), (
            label
        )
        browser.press(Keys.ESCAPE)
        wait_until(lambda: not browser.run("return document.querySelector('dialog')"), "the dialog to close")


def test_the_login_is_readable_in_light_and_dark_and_fits_into_400_pixels(
    chromium: Browser, guarded: ConsoleProcess
) -> None:
    chromium.address = guarded.address
    for width in (1280, 400):
        chromium.resize(width)
        chromium.open("/topics")
        chromium.wait_for("Log in with a user of the cluster")
        assert layout_shift(chromium) < MOST_SHIFT
        for scheme in ("light", "dark"):
            assert not find_violations(chromium, scheme)
    assert is_within(chromium)


@pytest.mark.parametrize("width", [400, 1280])
def test_long_figures_fit_into_their_tiles(browser: Browser, shown: str, width: int) -> None:
    browser.resize(width)
    browser.open("/")
    browser.wait_for(PAGES["/"])
    script = (
        "const values = [...document.querySelectorAll('.tile-value')]; values.forEach((each) => {"
        "  each.textContent = '123.4 MB/s'; });"
        "return values.map((each) => each.scrollWidth - each.clientWidth)"
    )
    assert max(browser.run(script)) <= 0


@pytest.mark.parametrize(("page", "link"), [("/topics", "shown"), ("/groups", "traffic-readers")])
def test_a_chart_of_what_rests_does_not_promise_figures(browser: Browser, shown: str, page: str, link: str) -> None:
    """Among thousands of topics and groups it has none, and it said that they begin with this console."""
    browser.open(page)
    browser.wait_for(link)
    browser.run(
        "const asked = window.fetch; window.fetch = (url, options) => url.startsWith('/api/history')"
        "  ? Promise.resolve(Response.json({now: 0, seconds: 3600, series: {}})) : asked(url, options)"
    )
    browser.click(link, "tbody a")
    browser.wait_for("those at rest have none", ".chart")


def test_a_theme_can_be_chosen_and_stays(browser: Browser) -> None:
    browser.open("/topics")
    colour = "return getComputedStyle(document.body).backgroundColor"
    browser.wait_for("Topics", "h1")
    light = browser.run(colour)
    browser.click("Light / dark")
    dark = browser.run(colour)
    assert dark != light
    browser.open("/topics")
    assert browser.run(colour) == dark
    browser.wait_for("Topics", "h1")
    browser.click("Light / dark")
    assert browser.run(colour) == light


def test_all_scripts_are_below_300_kilobytes() -> None:
    assert sum(path.stat().st_size for path in STATIC.rglob("*.js")) < 300_000


def test_no_script_makes_markup_of_strings() -> None:
    for path in STATIC.rglob("*.js"):
        text = path.read_text(encoding="utf-8")
        for word in (
            "innerHTML",
            "outerHTML",
            "insertAdjacentHTML",
            "document.write",
            "eval(",
            "new Function",
            "javascript:",
        ):
            assert word not in text, f"{path.name} has {word}"
