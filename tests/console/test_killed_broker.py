"""A broker is killed while every page is open: each says what is true then within three seconds, or goes on."""

from __future__ import annotations

import json
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

import pytest

from barnabas.clients import Admin, Producer
from barnabas.clients.admin.cluster_admin import ClusterAdmin
from barnabas.console.messages.decoding import ContentDecoder
from barnabas.console.messages.scanning import OLDEST, TopicScan, Wanted
from barnabas.console.messages.schemas import Schemas
from tests.console.test_appearance import find_violations
from tests.support.steady_load import GROUP, TOPIC
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from barnabas.testing import Cluster
    from tests.support.consoles import Browser

TRUE_SECONDS: Final = 3.0
RECORDS_EACH: Final = 250

FOLLOWED: Final = f"/topics/{TOPIC}/messages?from=follow"
PAGES: Final = {
    "/": "says('2 of 3') && /^Broker VICTIM (is down|does not answer)/.test(rows('.problem')[0]?.innerText)"
    " && /^[1-9]/.test(readout('Under-replicated')) && tile('On disk').endsWith('on 2 of 3')"
    " && readout('On disk') === tile('On disk').replace(' on 2 of 3', '')"
    " && readout('Bytes in') === tile('Bytes in') && readout('Lag of all groups') === `${tile('Lag')} records`",
    f"/topics?q={TOPIC}": "says('under-replicated', 'tbody')",
    f"/topics/{TOPIC}": "says('under-replicated', 'tbody')",
    f"/topics/{TOPIC}/groups": f"says('{GROUP}', 'tbody')",
    FOLLOWED: "rows('.row').some((row) => row.cells[0].innerText === 'PARTITION'"
    " && Date.parse(row.cells[2].innerText.replace(' ', 'T')) > killed + 200)",
    "/groups": f"says('{GROUP}', 'tbody')",
    f"/group?id={GROUP}": "rows('.tile').some((each) => /Coordinator\\s+[^VICTIM\\s]/.test(each.innerText))",
    "/clients": "says('No client has pushed') || says('Last push')",
    "/brokers": "says('no answer', 'tbody') || says('down', 'tbody')",
    "/brokers/VICTIM": "says('no answer', '.tiles') || says('down', '.tiles')",
    "/pipelines": "says('Pipelines and tables')",
    "/transactions": "says('Transactions')",
    "/security": "says('Security is off')",
    "/retention": f"says('{TOPIC}', 'table[aria-label^=Retention]')",
}
"""Pages, and a script that tells whether they are true after the death of a broker."""


@pytest.fixture(scope="module")
def searched(cluster: Cluster) -> str:
    """A topic that takes several questions to each of its leaders to be read."""
    with Admin(cluster.bootstrap_servers) as admin, Producer(cluster.bootstrap_servers) as producer:
        admin.create_topic("searched", 3, 3)
        for number in range(3 * RECORDS_EACH):
            producer.send("searched", "x" * 10_000, partition=number % 3)
    return "searched"


@contextmanager
def killed(cluster: Cluster, number: int, *topics: str) -> Iterator[float]:
    """A broker is dead for as long as the block lasts; when it died, in milliseconds."""
    at = time.time() * 1000
    cluster.brokers[number].kill()
    try:
        yield at
    finally:
        cluster.brokers[number].start()
        for topic in topics:
            cluster.wait_until_in_sync(topic)


@contextmanager
def windows(browser: Browser, pages: Iterator[str]) -> Iterator[Mapping[str, str]]:
    """Each page in a window of its own, all of which are seen."""
    driver = browser.driver
    first, found = driver.current_window_handle, {}
    try:
        for page in pages:
            driver.switch_to.new_window("window")
            found[page] = driver.current_window_handle
            browser.resize(1280)
            browser.open(page)
        for handle in found.values():
            driver.switch_to.window(handle)
            browser.find(".page:not(.loading)")
        yield found
    finally:
        for handle in found.values():
            driver.switch_to.window(handle)
            driver.close()
        driver.switch_to.window(first)


def watch(browser: Browser, script: str, *, is_for_good: bool = True) -> None:
    """Note when a page becomes true, or stops to be if it has to be for good, and how often it was answered since."""
    browser.run(
        "window.killed = Infinity; window.answers = 0; window.since = null;"
        "const says = (text, within = 'main') => document.querySelector(within)?.innerText.includes(text);"
        "const rows = (selector) => [...document.querySelectorAll(selector)];"
        "const within = (selector, name, part) => rows(selector)"
        "  .find((each) => each.firstElementChild.innerText.toLowerCase().startsWith(name.toLowerCase()))"
        "  ?.querySelector(part)?.innerText;"
        "const tile = (name) => within('.tile', name, '.tile-value');"
        "const readout = (name) => within('figure.chart', name, '.chart-readout');"
        f"const holds = (killed) => !document.querySelector('.notice.error') && ({script});"
        "const look = () => {"
        "  if (holds(window.killed)) window.since ??= Date.now();"
        f"  else if ({json.dumps(is_for_good)}) window.since = null;"
        "};"
        "new MutationObserver(look).observe(document.body, {childList: true, characterData: true, subtree: true});"
        "new PerformanceObserver((list) => { window.answers += list.getEntries()"
        "  .filter((each) => each.name.includes('/api/') && performance.timeOrigin + each.startTime > window.killed)"
        "  .length; }).observe({type: 'resource'});"
        "window.look = look; look()"
    )


def readout(browser: Browser, title: str) -> str:
    """What a chart says of now."""
    script = (
        "return [...document.querySelectorAll('figure.chart')].find((each) => each.innerText.startsWith(arguments[0]))"
        "?.querySelector('.chart-readout')?.innerText ?? ''"
    )
    return str(browser.run(script, title))


def seconds_until_true(browser: Browser, at: float) -> float:
    """How long after the death it took until the page was true for good; pages that ask seldom are woken."""
    browser.run("window.killed = arguments[0]; window.look()", at)
    wake = "document.dispatchEvent(new Event('visibilitychange'));"
    told = "return window.since !== null && (window.answers > 2 || location.pathname.endsWith('/messages'))"
    try:
        wait_until(lambda: browser.run(wake + told), "a page to be true")
    except AssertionError as failed:
        raise AssertionError(f"{browser.driver.current_url} says:\n{browser.text('main')[:2000]}") from failed
    since: float = browser.run("return window.since")
    return (since - at) / 1000


@pytest.mark.timeout(600)
def test_every_page_is_true_within_three_seconds_after_a_broker_died(
    browser: Browser, cluster: Cluster, searched: str
) -> None:
    """Once in two times: the machine may be busy."""
    took = seconds_after_a_death(browser, cluster, searched)
    if max(took.values()) >= TRUE_SECONDS:
        took = seconds_after_a_death(browser, cluster, searched)
    assert max(took.values()) < TRUE_SECONDS, took


def seconds_after_a_death(browser: Browser, cluster: Cluster, searched: str) -> dict[str, float]:
    """How long it takes until each page is true.

    The coordinator of the group that reads dies, and so a leader of the topic that is followed and of one that is
    searched: the search goes on, too.
    """
    number = cluster.brokers.index(cluster.coordinator(GROUP))
    led = [each for each in range(3) if cluster.leader(TOPIC, each) is cluster.brokers[number]]
    assert led
    pages = {page.replace("VICTIM", str(number)): script for page, script in PAGES.items()}
    with ClusterAdmin(cluster.bootstrap_servers, {}, 10) as admin, windows(browser, iter(pages)) as handles:
        browser.driver.switch_to.window(handles["/"])
        for title in ("Under-replicated", "Bytes in", "On disk"):
            wait_until(lambda title=title: readout(browser, title), f"the chart {title}")  # type: ignore[misc]
        for page, handle in handles.items():
            browser.driver.switch_to.window(handle)
            watch(browser, pages[page].replace("VICTIM", str(number)).replace("PARTITION", str(led[0])))
        wanted = Wanted(
            topic=searched, partitions=(0, 1, 2), way=OLDEST, limit=10_000, most_records=10**6, most_seconds=60
        )
        search = TopicScan(admin, wanted, ContentDecoder(Schemas(None, None), searched, ()), None).events()
        seen = [next(event for event in search if event[0] == "records")]
        with killed(cluster, number, TOPIC, searched) as at:
            took: dict[str, float] = {}
            for page, handle in handles.items():
                browser.driver.switch_to.window(handle)
                took[page] = seconds_until_true(browser, at)
            del took[FOLLOWED]  # which has to go on, and waits for a leader and for the producer
            browser.driver.switch_to.window(handles[f"/brokers/{number}"])
            browser.wait_for("The broker is down.", "main")
            browser.driver.switch_to.window(handles["/"])
            browser.wait_for("under-replicated", "main")
            for scheme in ("light", "dark"):
                assert not find_violations(browser, scheme)
            assert_whole([*seen, *search])
        browser.wait_for("Nothing is wrong", ".well")
        browser.driver.switch_to.window(handles[f"/brokers/{number}"])
        browser.wait_for("up", ".tiles")
        browser.wait_for("log.dirs", "table[aria-label=Settings]")
    return took


def assert_whole(events: list[tuple[str, dict[str, Any]]]) -> None:
    """A search has found everything once."""
    rows = [row for name, data in events if name == "records" for row in data["records"]]
    found = sorted((row["partition"], row["offset"]) for row in rows)
    assert found == [(partition, offset) for partition in range(3) for offset in range(RECORDS_EACH)]
    assert events[-1][1]["reason"] == "end"
