"""Pages are drawn anew every second. People click, type and select meanwhile, and nothing is taken from their hands."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest
from selenium.webdriver import ActionChains

from barnabas.clients import Admin, Producer
from tests.support.consoles import Keys
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from barnabas.testing import Cluster
    from tests.support.consoles import Browser


def wait_for_refreshes(browser: Browser, api: str, many: int = 2) -> None:
    """Until the page has had some more answers, and has drawn the last."""
    script = (
        "const [url, many, done] = arguments; let seen = 0;"
        "new PerformanceObserver((list, observer) => {"
        "  seen += list.getEntriesByName(location.origin + url).length;"
        "  if (seen >= many) { observer.disconnect(); requestAnimationFrame(() => setTimeout(done)); }"
        "}).observe({type: 'resource'})"
    )
    browser.driver.execute_async_script(script, api, many)


def click_slowly(browser: Browser, selector: str, api: str) -> None:
    """Press the mouse on something, let the page refresh, and let go."""
    element = browser.find(selector)
    browser.run("arguments[0].scrollIntoView({block: 'center'})", element)
    mouse = ActionChains(browser.driver, duration=0)
    mouse.move_to_element(element).click_and_hold().perform()
    wait_for_refreshes(browser, api, 1)
    ActionChains(browser.driver, duration=0).release().perform()


@contextmanager
def open_transaction(cluster: Cluster, name: str) -> Iterator[None]:
    """A transaction that is open for as long as the block lasts."""
    with (
        Producer(cluster.bootstrap_servers, transactional_id=name) as producer,
        pytest.raises(ZeroDivisionError),
        producer.transaction(),
    ):
        producer.send("held", "x")
        producer.flush()
        yield
        raise ZeroDivisionError


@pytest.fixture(scope="module")
def held(cluster: Cluster) -> str:
    with Admin(cluster.bootstrap_servers) as admin:
        admin.create_topic("held", 1, 3)
    return "held"


@pytest.mark.parametrize(
    ("page", "selector", "api", "then"),
    [
        ("/", "table[aria-label='Busiest topics'] a", "/api/overview", "traffic"),
        ("/", "table[aria-label=Brokers] a", "/api/overview", "Broker 0"),
        ("/", ".tiles a[href='/groups']", "/api/overview", "Groups"),
        ("/brokers", "table[aria-label^=Spread] a", "/api/brokers", "Broker 0"),
        ("/topics", "a[href='/topics/traffic']", "/api/topics", "traffic"),
        ("/groups", "a[href='/group?id=traffic-readers']", "/api/groups", "traffic-readers"),
        ("/topics/traffic/groups", "tbody a", "/api/topics/traffic/groups", "traffic-readers"),
    ],
)
def test_a_click_that_spans_a_refresh_arrives(browser: Browser, page: str, selector: str, api: str, then: str) -> None:
    browser.open(page)
    click_slowly(browser, selector, api)
    browser.wait_for(then, "h1")


def test_a_button_in_a_table_can_be_held_and_keeps_the_focus(browser: Browser, cluster: Cluster, held: str) -> None:
    with open_transaction(cluster, "held"):
        browser.open("/transactions")
        button = browser.find("tbody button")
        browser.run("arguments[0].focus()", button)
        wait_for_refreshes(browser, "/api/transactions")
        assert browser.driver.switch_to.active_element == button
        click_slowly(browser, "tbody button", "/api/transactions")
        browser.wait_for("Abort the transaction of held?", "dialog")


def test_a_link_keeps_the_focus_while_its_figures_change(browser: Browser) -> None:
    browser.open("/")
    link = browser.find("table[aria-label='Busiest topics'] a")
    browser.run("arguments[0].focus()", link)
    wait_for_refreshes(browser, "/api/overview", 3)
    assert browser.driver.switch_to.active_element == link
    browser.press(Keys.ENTER)
    browser.wait_for("traffic", "h1")


def test_what_is_selected_stays_selected(browser: Browser) -> None:
    browser.open("/brokers")
    address = browser.find("table[aria-label=Brokers] .mono").text
    ActionChains(browser.driver).double_click(browser.find("table[aria-label=Brokers] .mono")).perform()
    selected = browser.run("return getSelection().toString().trim()")
    assert selected in address
    assert selected
    wait_for_refreshes(browser, "/api/brokers")
    assert browser.run("return getSelection().toString().trim()") == selected


def test_what_has_not_changed_is_not_read_out_again(browser: Browser) -> None:
    browser.open("/")
    browser.wait_for("Nothing is wrong", ".well")
    browser.run(
        "window.changes = 0; for (const each of document.querySelectorAll('[aria-live], [role=status]'))"
        "  new MutationObserver((list) => { window.changes += list.length; })"
        "    .observe(each, {childList: true, characterData: true, attributes: true, subtree: true})"
    )
    wait_for_refreshes(browser, "/api/overview", 3)
    assert browser.run("return window.changes") == 0


def test_a_button_says_that_it_has_copied_over_a_refresh(browser: Browser, held: str) -> None:
    browser.open(f"/topics/{held}/groups")
    button = browser.find(".empty .copy")
    browser.run(
        "const node = arguments[0]; window.said = []; window.node = node;"
        "new MutationObserver(() => window.said.push([node.textContent, performance.now()]))"
        "  .observe(node, {childList: true, characterData: true, subtree: true})",
        button,
    )
    ActionChains(browser.driver).click(button).perform()
    said = wait_until(lambda: browser.run("return window.said.length > 1 && window.said"), "it to say Copied, and Copy")
    assert [text for text, _ in said] == ["Copied", "Copy"]
    assert said[1][1] - said[0][1] > 1_000
    wait_for_refreshes(browser, f"/api/topics/{held}/groups")
    assert browser.run("return window.node.isConnected")


def test_a_drawing_is_what_was_drawn_last_and_keeps_its_nodes(browser: Browser) -> None:
    """Random lists of rows, with and without keys, one over the other: what is kept, moved, focused and clicked."""
    browser.open("/brokers")
    browser.wait_for("Brokers", "h1")
    failures = browser.driver.execute_async_script(
        """
        const done = arguments[arguments.length - 1];
        (async () => {
          const { h } = await import("/static/dom.js");
          const { update } = await import("/static/update.js");
          let state = 7;
          const random = (below) => { state = (state * 48271) % 2147483647; return state % below; };
          const failures = [];
          const root = document.body.appendChild(h("div"));
          let clicked = null;
          const row = (key, round) => h(key % 7 ? "p" : "div", { key, class: random(2) ? `c${random(3)}` : null },
            random(3) ? h("b", { style: { width: `${random(9)}px` } }, random(5)) : null, "text",
            random(2) ? String(random(5)) : null,
            h("button", { onclick: () => { clicked = `${key} ${round}`; } }, "go"));
          for (let round = 0; round < 300; round += 1) {
            const order = [...Array(9).keys()].filter(() => random(4)).sort(() => random(3) - 1);
            const before = new Map([...root.children].map((each) => [each.dataset.is, each]));
            const focus = [...root.children][random(Math.max(1, root.children.length))];
            focus?.querySelector("button").focus();
            const drawn = order.map((key) => { const each = row(key, round); each.dataset.is = key; return each; });
            const wanted = h("div", {}, drawn.map((each) => each.cloneNode(true)));
            update(root, drawn);
            if (!root.isEqualNode(wanted)) failures.push([round, root.innerHTML, wanted.innerHTML]);
            for (const each of root.children) {
              const { is } = each.dataset;
              if (before.has(is) && before.get(is) !== each) failures.push([round, "replaced", is]);
              each.querySelector("button").click();
              if (clicked !== `${is} ${round}`) failures.push([round, "clicked", clicked, is]);
            }
            if (focus?.isConnected && !focus.contains(document.activeElement)) failures.push([round, "unfocused"]);
          }
          done(failures);
        })().catch((error) => done([String(error)]));
        """
    )
    assert not failures, failures[:3]
