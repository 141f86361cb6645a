"""A broker hangs while pages are open: each says so within three seconds, and none waits for it."""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING, Final

import pytest

from barnabas.clients import Admin
from barnabas.testing import Cluster
from tests.console.conftest import METRICS
from tests.console.test_appearance import find_violations
from tests.console.test_hanging import hanging
from tests.console.test_killed_broker import TRUE_SECONDS, readout, seconds_until_true, watch, windows
from tests.support.consoles import running_console
from tests.support.steady_load import TOPIC
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from tests.support.consoles import Browser

PAGES: Final = {
    "/group?id=HELD": "says('Broker VICTIM coordinates it and does not answer', '.notice.warning')"
    " && says('No answer', '.tiles') && readout('Lag') === 'not known now'",
    "/": "says('2 of 3') && /^Broker VICTIM does not answer/.test(rows('.problem')[0]?.innerText)"
    " && tile('On disk').endsWith('on 2 of 3') && readout('Bytes in') === tile('Bytes in')",
    "/groups": "rows('tbody tr').some((row) => row.innerText.includes('HELD') && row.innerText.includes('No answer'))",
    "/group?id=FREE": "says('Empty', '.tiles')",
    f"/topics/{TOPIC}": "says('in sync', 'tbody')",
    f"/topics/{TOPIC}/settings": "says('retention.ms')",
    "/brokers": "says('no answer', 'tbody')",
    "/brokers/VICTIM": "says('no answer', '.tiles') && says('Broker VICTIM does not answer', '.problem')"
    " && says('The settings cannot be read')",
    "/brokers/OTHER": "says('up', '.tiles') && says('log.dirs', 'table[aria-label=Settings]')",
    "/pipelines": "says('Pipelines and tables')",
    "/transactions": "says('Broker VICTIM does not answer')",
    "/security": "says('Security is off')",
    "/retention": "says('no answer', 'table[aria-label=Cleaner]')"
    " && says('Broker VICTIM', 'table[aria-label=Cleaner]')",
}
"""Pages, and a script that tells whether they are true while a broker hangs that coordinates the group HELD.

They are so for some seconds: then the broker is fenced, and others coordinate what it did.
"""

SLOWEST: Final = (
    "return Math.max(0, ...performance.getEntriesByType('resource').filter((each) => each.name.includes('/api/')"
    " && performance.timeOrigin + each.startTime > arguments[0]).map((each) => each.duration))"
)
"""Milliseconds until the answer came that took longest of those that were asked for since a moment."""


@pytest.mark.timeout(600)
def test_every_page_says_within_three_seconds_that_a_broker_hangs(chromium: Browser, tmp_path: Path) -> None:
    """The page of a group took 8 to 16 seconds, and others up to 11."""
    config = {
        "metrics.listener": "127.0.0.1:0",
        "auto.leader.rebalance.enable": False,
        "offsets.topic.num.partitions": 6,
        "offsets.topic.replication.factor": 3,
    }
    groups = [f"idle-{each}" for each in range(12)]
    with Cluster(config, brokers=3) as cluster, Admin(cluster.bootstrap_servers) as admin:
        admin.create_topic(TOPIC, 3, 3)
        for each in groups:
            admin.commit_group_offsets(each, {admin.partitions(TOPIC)[0]: 0})
        addresses = [address for broker in cluster.brokers for address in re.findall(METRICS, broker.log())[-1:]]
        words = [word for address in addresses for word in ("--metrics", address)]
        words += [word for index in range(len(PAGES)) for word in ("--name", f"page{index}.localhost")]
        with running_console(tmp_path, cluster.bootstrap_servers, *words) as console:
            took, slowest = seconds_of_hanging(chromium, console.port, cluster, groups)
            if max(took.values()) >= TRUE_SECONDS:  # the machine may be busy
                took, slowest = seconds_of_hanging(chromium, console.port, cluster, groups)
    assert max(took.values()) < TRUE_SECONDS, took
    assert max(slowest.values()) < TRUE_SECONDS, slowest


def seconds_of_hanging(
    browser: Browser, port: int, cluster: Cluster, groups: Sequence[str]
) -> tuple[dict[str, float], dict[str, float]]:
    """How long it takes until each page is true, and the longest that one waits for an answer."""

    controller = cluster.controller()
    held = next(each for each in groups if cluster.coordinator(each) is not controller)
    victim = cluster.coordinator(held)
    free = next(each for each in groups if cluster.coordinator(each) is not victim)
    number = cluster.brokers.index(victim)
    names = {"VICTIM": number, "OTHER": (number + 1) % 3, "HELD": held, "FREE": free}

    def named(text: str) -> str:
        for word, value in names.items():
            text = text.replace(word, str(value))
        return text

    def by_names() -> Iterator[str]:
        """Each by another name of the console: a browser has six connections to one, and nobody opens so many pages."""
        for index, page in enumerate(pages):
            browser.address = f"http://page{index}.localhost:{port}"
            yield page

    pages = {named(page): named(script) for page, script in PAGES.items()}
    took: dict[str, float] = {}
    slowest: dict[str, float] = {}
    with windows(browser, by_names()) as handles:
        for page, handle in handles.items():
            browser.driver.switch_to.window(handle)
            for title in {"/": ("Bytes in", "On disk"), named("/group?id=HELD"): ("Lag",)}.get(page, ()):
                wait_until(lambda title=title: readout(browser, title), f"the chart {title}")  # type: ignore[misc]
            watch(browser, pages[page], is_for_good=False)
        with hanging(cluster, number):
            at = time.time() * 1000
            for page, handle in handles.items():
                browser.driver.switch_to.window(handle)
                took[page] = seconds_until_true(browser, at)
                slowest[page] = browser.run(SLOWEST, at) / 1000
                if page == next(iter(pages)):
                    assert not find_violations(browser, "dark")
        browser.driver.switch_to.window(handles[named("/group?id=HELD")])
        browser.wait_until_gone("does not answer", "main")
        browser.wait_for("Empty", ".tiles")
        browser.driver.switch_to.window(handles["/"])
        browser.wait_for("Nothing is wrong", ".well")
    return took, slowest
