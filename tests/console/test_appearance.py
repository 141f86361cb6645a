"""How pages look: readable by everybody, in light and dark, on a telephone."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

import barnabas.console
from barnabas.clients import Admin, Producer
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from barnabas.testing import Cluster
    from tests.support.consoles import Browser

STATIC: Final = Path(barnabas.console.__file__).parent / "static"
PAGES: Final = {
    "/": "Nothing is wrong",
    "/topics": "shown",
    "/topics/shown": "in sync",
    "/topics/shown/settings": "retention.ms",
    "/topics/shown/groups": "No group has read",
    "/topics/shown/messages?partition=0&offset=0": "not compressed",
    "/groups": "Groups",
    "/clients": "Clients",
    "/brokers": "Nothing is being moved",
    "/brokers/0": "Largest partitions",
    "/brokers/move": "Work out a plan",
    "/pipelines": "Pipelines and tables",
    "/transactions": "Transactions",
    "/security": "Quotas",
    "/retention": "shown",
}


@pytest.fixture(scope="module")
def shown(cluster: Cluster) -> str:
    with Admin(cluster.bootstrap_servers) as admin, Producer(cluster.bootstrap_servers) as producer:
        admin.create_topic("shown", 1, 3)
        producer.send("shown", '{"a": [1, true, null, "text"]}', key="k", headers={"h": "v"})
    return "shown"


def find_violations(browser: Browser, *rules: str) -> list[tuple[str, list[str]]]:
    """What axe-core finds serious on the page by some rules, or by all, and where."""
    if not browser.run("return 'axe' in window"):
        browser.run(files("axe_core_python").joinpath("axe.min.js").read_text(encoding="utf-8"))
    options = {"resultTypes": ["violations"], **({"runOnly": rules} if rules else {})}
    found: dict[str, Any] = browser.driver.execute_async_script(
        "axe.run(document, arguments[0]).then(arguments[arguments.length - 1])", options
    )
    bad = [each for each in found["violations"] if each["impact"] in ("serious", "critical")]
    return [(each["id"], [node["html"] for node in each["nodes"]]) for each in bad]


@pytest.mark.parametrize("page", PAGES)
def test_a_page_is_readable_in_light_and_dark_and_fits_into_400_pixels(browser: Browser, shown: str, page: str) -> None:
    browser.open(page)
    browser.wait_for(PAGES[page])
    assert not find_violations(browser)
    browser.prefer("dark")
    wait_until(lambda: not browser.run("return document.getAnimations().length"), "colours to have changed")
    assert not find_violations(browser, "color-contrast"), "dark"
    browser.resize(400)
    wait_until(lambda: browser.run("return innerWidth") == 400, "the page to be narrow")
    assert browser.run("return document.documentElement.scrollWidth - innerWidth") <= 0
    assert browser.run("return getComputedStyle(document.querySelector('.side-body')).display") == "none"
    browser.click("Menu")
    assert browser.run("return getComputedStyle(document.querySelector('.side-body')).display") == "flex"


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
