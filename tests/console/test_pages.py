"""Every page and every change, in a browser."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from barnabas import Queue
from barnabas.clients import Admin, Consumer, Producer
from barnabas.clients.admin.cluster_admin import ClusterAdmin
from barnabas.clients.admin.configs import EntityType
from barnabas.clients.errors import RequestRefused, TransactionAborted
from barnabas.model.internal_topics import PIPELINE_METRICS
from tests.console.test_appearance import find_violations, is_within
from tests.support.consoles import Keys
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from barnabas.testing import Cluster
    from tests.support.consoles import Browser, ConsoleProcess


@pytest.fixture(scope="module")
def admin(cluster: Cluster) -> Iterator[Admin]:
    with Admin(cluster.bootstrap_servers) as admin:
        yield admin


@pytest.fixture(scope="module")
def orders(cluster: Cluster, admin: Admin) -> str:
    """A topic with 99 orders in two partitions, a tombstone, and a group that has read ten of partition 0."""
    admin.create_topic("orders", 2, 3)
    with Producer(cluster.bootstrap_servers) as producer:
        for number in range(99):
            value = json.dumps({"id": number, "total": number * 10, "city": "Köln"})
            producer.send("orders", value, key=f"k{number}", partition=number % 2, headers={"trace": f"t{number}"})
        producer.send("orders", None, key="gone", partition=1)
    partitions = admin.partitions("orders")
    admin.commit_group_offsets("readers", {partitions[0]: 10, partitions[1]: 51})
    return "orders"


def test_the_overview_says_what_is_there(browser: Browser, orders: str) -> None:
    browser.open("/")
    browser.wait_for("Nothing is wrong", ".well")
    browser.wait_for("3 of 3", ".tiles")
    browser.wait_for("readers")
    assert browser.text("h1") == "Overview"


CHARTS = ("Records in", "Lag of all groups", "Bytes in", "Bytes out", "On disk", "Under-replicated")


def test_the_overview_draws_what_was(browser: Browser) -> None:
    """Figures are taken every ten seconds, and rates need two of them."""
    browser.open("/")
    for title in CHARTS:
        browser.find(f".chart svg[aria-label^='{title}: now']")
    browser.run("for (const each of document.querySelectorAll('.chart svg')) each.remove()")
    browser.click("24 h")
    for title in CHARTS:
        browser.find(f".chart svg[aria-label^='{title}: now']")


def test_commands_to_copy_name_the_cluster(browser: Browser, cluster: Cluster, admin: Admin) -> None:
    admin.create_topic("silent", 1, 3)
    browser.open("/topics/silent/messages")
    browser.wait_for(f"barnabas produce --topic silent --bootstrap-server {cluster.bootstrap_servers}", ".command")


def test_something_is_seen_within_a_second(browser: Browser) -> None:
    """Once in a few times: the machine may be busy."""

    def first_paint() -> float:
        browser.open("/")
        browser.wait_for("3 of 3", ".tiles")
        return float(browser.run("return performance.getEntriesByName('first-contentful-paint')[0].startTime"))

    wait_until(lambda: first_paint() < 1_000, "a first paint within a second")


def test_no_request_leaves_the_console(browser: Browser, console: ConsoleProcess, orders: str) -> None:
    browser.open(f"/topics/{orders}/messages")
    browser.wait_for("gone", ".records")
    loaded = browser.run("return performance.getEntriesByType('resource').map((each) => each.name)")
    assert loaded
    assert all(name.startswith(console.address) for name in loaded)


def test_keys_lead_through_the_console(browser: Browser, orders: str) -> None:
    browser.open("/")
    browser.wait_for("Overview", "h1")
    browser.press("g", "t")
    browser.wait_for("Topics", "h1")
    browser.wait_for(orders, "tbody")
    browser.press("/")
    assert browser.run("return document.activeElement.type") == "search"
    browser.press(Keys.ESCAPE)
    browser.press("?")
    browser.wait_for("Keyboard", "dialog")
    told = browser.run(
        "return [...document.querySelectorAll('dialog dt')].map((each) =>"
        "  [each.nextSibling.innerText, [...each.children].map((key) => key.innerText).join(' ')])"
    )
    ways = {name: keys.removeprefix("g ") for name, keys in told if keys.startswith("g ")}
    assert list(ways) == browser.run("return [...document.querySelectorAll('nav a')].map((each) => each.innerText)")
    browser.press(Keys.ESCAPE)
    for name, key in ways.items():
        browser.press("g", key)
        browser.wait_for(name, "nav a[aria-current]")


def test_arrows_lead_through_the_rows_of_a_table(browser: Browser, orders: str) -> None:
    browser.open("/brokers")
    browser.run("arguments[0].focus()", browser.find("table[aria-label=Brokers] tr:nth-child(1) a"))
    browser.press(Keys.ARROW_DOWN, Keys.ARROW_DOWN)
    assert browser.driver.switch_to.active_element.text == "Broker 2"
    browser.press(Keys.ARROW_DOWN, Keys.ARROW_UP)
    assert browser.driver.switch_to.active_element.text == "Broker 1"
    browser.open("/topics?internal=1")
    browser.run("arguments[0].focus()", browser.find(f"a[href='/topics/{orders}']"))
    browser.press(Keys.ARROW_DOWN)
    assert browser.driver.switch_to.active_element.text > orders


def test_a_topic_is_made_changed_and_deleted(browser: Browser, admin: Admin) -> None:
    browser.open("/topics")
    browser.click("Create topic")
    browser.type("#field-name", "not a name")
    browser.click("Create")
    browser.wait_for("not a name", "dialog .form-error")
    browser.type("#field-name", "fresh")
    browser.type("#field-partitions", "2")
    browser.choose("#field-cleanup", "compact")
    browser.click("Create")
    browser.wait_for("fresh", "h1")
    browser.wait_for("in sync", "tbody")
    browser.click("Settings", ".tabs a")
    browser.wait_for("compact", "tbody")
    browser.find("button[aria-label='Change retention.ms']").click()
    browser.type("#field-value", "60000")
    browser.click("Save")
    browser.wait_for("retention.ms was changed.")
    (settings,) = admin.topic_configs(["fresh"]).values()
    found = {each.name: each.value for each in settings}
    assert (found["retention.ms"], found["cleanup.policy"]) == ("60000", "compact")
    browser.click("Add partitions")
    browser.type("#field-partitions", "4")
    browser.click("Add", "dialog button")
    browser.wait_for("The partitions were added.")
    assert len(admin.partitions("fresh")) == 4
    browser.click("Delete topic", ".head button")
    button = browser.find("dialog button.danger")
    assert not button.is_enabled()
    browser.type("#field-confirm", "fres")
    assert not button.is_enabled()
    browser.type("#field-confirm", "fresh")
    button.click()
    browser.wait_for("Topics", "h1")
    with pytest.raises(RequestRefused):
        admin.describe_topics("fresh")


def test_records_of_a_topic_are_deleted_and_the_topic_stays(browser: Browser, admin: Admin, cluster: Cluster) -> None:
    admin.create_topic("cleared", 1, 3)
    with Producer(cluster.bootstrap_servers) as producer:
        producer.send("cleared", "x")
    browser.open("/topics/cleared")
    browser.click("Delete records", ".head button")
    browser.type("#field-confirm", "cleared")
    browser.click("Delete records", "dialog button")
    browser.wait_for("The records were deleted.")
    partitions = admin.partitions("cleared")
    assert admin.beginning_offsets(partitions) == dict.fromkeys(partitions, 1)


def test_records_are_found_by_offset_time_and_filter(browser: Browser, orders: str) -> None:
    browser.open(f"/topics/{orders}/messages")
    browser.wait_for("50 records found", ".scan")
    browser.wait_for("tombstone", ".records")
    browser.click("Older records")
    browser.wait_for("That is all.", ".scan")
    assert browser.run("return document.querySelectorAll('.records .row').length") == 100
    browser.type(".filter", "value.total > 950 && headers.trace.startsWith('t')")
    browser.click("Search")
    browser.wait_for("3 records found", ".scan")
    browser.wait_for("1 record could not be told", ".scan")
    browser.type(".filter", "value.total >= 0")
    browser.click("Search")
    browser.wait_for("50 records found", ".scan")
    browser.click("Older records")
    browser.wait_for("That is all.", ".scan")
    assert browser.run("return document.querySelectorAll('.records .row').length") == 99
    browser.type(".filter", "value.total >")
    browser.click("Search")
    browser.wait_for("Syntax error", ".scan")
    browser.type(".filter", "tombstone")
    browser.choose("#from", "time")
    browser.click("Search")
    browser.wait_for("gone", ".records")


def test_a_link_leads_to_one_record(browser: Browser, orders: str) -> None:
    browser.open(f"/topics/{orders}/messages?partition=0&offset=7")
    browser.wait_for('"id": 14', ".detail")
    browser.wait_for("k14", ".detail")
    browser.wait_for("t14", ".detail")
    browser.wait_for("offsets", ".detail .fields")
    link = browser.text(".detail .command code")
    browser.open(link.removeprefix(browser.address))
    browser.wait_for('"total": 140', ".detail")


def test_a_link_that_was_cut_off_says_so(browser: Browser) -> None:
    """A page stayed empty for half a character."""
    browser.open("/topics/K%C3/messages")
    browser.wait_for("This address cannot be read.", ".notice")


def test_a_record_is_sent_and_seen_live(browser: Browser, admin: Admin, cluster: Cluster) -> None:
    admin.create_topic("live", 1, 3)
    browser.open("/topics/live/messages?from=follow")
    browser.wait_for("Waiting for new records", ".scan")
    browser.click("Send a record")
    browser.type("#field-key", "here")
    browser.type("#field-value", '{"a": 1')
    browser.choose("#field-format", "json")
    browser.click("Send")
    browser.wait_for("not json", "dialog .form-error")
    browser.type("#field-value", '{"a": 1}')
    browser.type("#field-headers", "from: console")
    browser.click("Send")
    browser.wait_for("partition 0, offset 0", ".notice")
    browser.wait_for("here", ".records")
    with Producer(cluster.bootstrap_servers) as producer:
        producer.send("live", "from elsewhere")
    browser.wait_for("from elsewhere", ".records")
    browser.click("Stop")
    browser.wait_for("Stopped.", ".scan")
    with Consumer(cluster.bootstrap_servers, "live", auto_offset_reset="earliest") as consumer:
        sent = next(iter(consumer.until_end()))
    assert (sent.key, sent.value, dict(sent.headers)) == (b"here", b'{"a": 1}', {"from": b"console"})


def test_records_and_dead_letters_are_sent_again(browser: Browser, admin: Admin, cluster: Cluster) -> None:
    """A letter without its record tells where that is; what made it one is left out."""
    for topic in ("tasks", "letters"):
        admin.create_topic(topic, 1, 3)
    told = {"__dlq.errors.topic": "tasks", "__dlq.errors.partition": "0", "__dlq.errors.offset": "0"}
    with Producer(cluster.bootstrap_servers) as producer:
        producer.send("tasks", "paint", key="k", headers={"h": "v"})
        producer.send("letters", None, headers=told)
        producer.send("letters", "a copy", headers={"h": "w", **told})
    for offset, topic in ((0, "letters"), (1, "letters"), (0, "tasks")):
        browser.open(f"/topics/{topic}/messages?partition=0&offset={offset}")
        browser.click("Send again")
        browser.click("Send", "dialog button")
        browser.wait_for("The record was sent: tasks, partition 0", ".notice")
    with Consumer(cluster.bootstrap_servers, "tasks", auto_offset_reset="earliest") as consumer:
        found = [(record.key, record.value, dict(record.headers)) for record in consumer.until_end()]
    paint = (b"k", b"paint", {"h": b"v"})
    assert found == [paint, paint, (None, b"a copy", {"h": b"w"}), paint]


def test_transactions_and_their_markers_are_shown(browser: Browser, admin: Admin, cluster: Cluster) -> None:
    admin.create_topic("transactional", 1, 3)
    with Producer(cluster.bootstrap_servers, transactional_id="shown") as producer:
        with producer.transaction():
            producer.send("transactional", "kept")
        with pytest.raises(ZeroDivisionError), producer.transaction():
            producer.send("transactional", "given up")
            producer.flush()
            raise ZeroDivisionError
    browser.open("/topics/transactional/messages")
    browser.wait_for("transaction commit of producer", ".records")
    browser.wait_for("transaction abort of producer", ".records")
    rows = browser.run("return [...document.querySelectorAll('.records .row')].map((row) => row.innerText)")
    assert any("aborted" in row and "given up" in row for row in rows)
    assert any("kept" in row and "aborted" not in row for row in rows)


def test_fields_are_masked_for_readers_filters_and_downloads(
    browser: Browser, console: ConsoleProcess, admin: Admin, cluster: Cluster
) -> None:
    admin.create_topic("cards", 1, 3)
    with Producer(cluster.bootstrap_servers) as producer:
        value = json.dumps({"card": {"number": "4111-secret", "name": "Zoë"}})
        producer.send("cards", value, headers={"token": "secret-too"})
        producer.send("cards", "4111-secret in a text")
    browser.open("/topics/cards/messages?partition=0&offset=0")
    browser.wait_for("Zoë", ".detail")
    assert "secret" not in browser.run("return document.documentElement.outerHTML")
    assert console.ask("GET", "/api/topics/cards/records/0/0/value").status == 400
    told = console.ask("GET", "/api/topics/cards/records?filter=value.card.number.contains(%27secret%27)")
    assert b'"found":0' in told.body
    admin.create_topic("given-up", 1, 3)
    with Producer(cluster.bootstrap_servers) as producer:
        producer.send("given-up", value, headers={"__dlq.errors.topic": "cards", "token": "secret-too"})
    for path in ("records/0/0", "records?from=oldest"):
        told = console.ask("GET", f"/api/topics/given-up/{path}")
        assert b"Zo" in told.body
        assert b"secret" not in told.body
    assert console.ask("GET", "/api/topics/given-up/records/0/0/value").status == 400


def test_every_change_is_in_the_audit_log(console: ConsoleProcess, admin: Admin) -> None:
    assert console.ask("POST", "/api/topics", {"name": "audited"}).status == 200
    assert console.ask("DELETE", "/api/topics/audited", {"confirm": "wrong"}).status == 400
    assert console.ask("DELETE", "/api/topics/audited", {"confirm": "audited"}).status == 200
    lines = (console.process.log.parent / "console" / "audit.log").read_text().splitlines()
    entries = [json.loads(line) for line in lines if '"audited"' in line]
    assert [(each["action"], each["outcome"]) for each in entries] == [
        ("create topic", "done"),
        ("delete topic", "done"),
    ]


def test_groups_are_listed_described_and_reset_after_a_look(browser: Browser, admin: Admin, orders: str) -> None:
    browser.open("/groups")
    browser.wait_for("readers", "tbody")
    browser.open("/group?id=readers")
    browser.wait_for("No members now.")
    browser.wait_for("40", ".tiles")
    browser.click("Reset offsets", ".head button")
    browser.wait_for("10 again", "dialog")
    browser.wait_for("left to read then", "dialog")
    assert admin.group_offsets("readers")[admin.partitions(orders)[0]] == 10, "a look changes nothing"
    browser.choose("#field-way", "latest")
    browser.wait_for("40 skipped", "dialog")
    browser.type("#field-confirm", "readers")
    browser.click("Reset offsets", "dialog button")
    browser.wait_for("The offsets were reset.")
    assert list(admin.group_offsets("readers").values()) == [50, 50]


def test_a_group_in_use_is_not_reset_and_shows_its_members(browser: Browser, cluster: Cluster, orders: str) -> None:
    with Consumer(cluster.bootstrap_servers, orders, group_id="busy", auto_offset_reset="earliest") as consumer:
        assert next(iter(consumer)) is not None
        consumer.commit()
        browser.open("/group?id=busy")
        browser.wait_for(f"{orders}-0", "table[aria-label=Members]")
        browser.click("Reset offsets", ".head button")
        browser.type("#field-confirm", "busy")
        browser.click("Reset offsets", "dialog button")
        browser.wait_for("active members", "dialog .form-error")


def test_a_group_is_deleted_with_its_name_typed(browser: Browser, admin: Admin, orders: str) -> None:
    admin.commit_group_offsets("a/b c?d", {admin.partitions(orders)[0]: 3})
    browser.open("/groups")
    browser.wait_for("a/b c?d", "tbody")
    browser.click("a/b c?d")
    browser.wait_for("a/b c?d", "h1")
    browser.wait_for("No members now.")
    browser.click("Delete group", ".head button")
    browser.type("#field-confirm", "a/b c?d")
    browser.click("Delete group", "dialog button")
    browser.wait_for("Groups", "h1")
    assert not admin.group_offsets("a/b c?d")


def test_a_queue_shows_its_workers_and_what_is_in_flight(browser: Browser, admin: Admin, cluster: Cluster) -> None:
    """Of three messages the first is held, the second is done, the third is given up."""
    admin.create_topic("jobs", 1, 3)
    admin.create_topic("dlq.jobs", 1, 3, configs={"errors.deadletterqueue.group.enable": "true"})
    with ClusterAdmin(cluster.bootstrap_servers) as tools:
        letters = {"errors.deadletterqueue.topic.name": "dlq.jobs"}
        tools.configs.alter(EntityType.GROUPS, "workers", add=letters, delete=())
    with Producer(cluster.bootstrap_servers) as producer:
        for number in range(3):
            producer.send("jobs", f"job {number}", partition=0)
    with Queue(cluster.bootstrap_servers, "jobs", "workers") as queue:
        messages = [wait_until(lambda: queue.get(timeout=1), "a message of the queue") for _ in range(3)]
        messages.sort(key=lambda message: message.record.offset)
        for word in (messages[1].done(), messages[2].reject()):
            word.result(20)
        browser.open("/group?id=workers")
        browser.wait_for("Queue", ".tiles")
        browser.wait_for("jobs-0", "table[aria-label=Members]")
        browser.wait_for("1: done", "table[aria-label='In flight']")
        browser.wait_for("2: given up", "table[aria-label='In flight']")
        letters_tile = ".tiles a[href='/topics/dlq.jobs/messages']"
        wait_until(
            lambda: browser.text(letters_tile).split() == ["Dead", "letters", "1"], "a dead letter to be counted"
        )
        for scheme in ("light", "dark"):
            assert not find_violations(browser, scheme)
        browser.resize(400)
        wait_until(lambda: is_within(browser), "the page to be narrow")
        browser.resize(1280)
        browser.click("2: given up")
        browser.wait_for("job 2", ".detail")


def test_brokers_show_their_spread_directories_and_settings(browser: Browser, cluster: Cluster, orders: str) -> None:
    browser.open("/brokers")
    browser.wait_for("controller", "tbody")
    browser.wait_for("Nothing is being moved.")
    browser.click("Elect preferred leaders")
    browser.click("Elect", "dialog button")
    browser.wait_for("leader", ".notice")
    browser.click("Broker 1")
    browser.wait_for("Log directories")
    browser.wait_for(str(cluster.brokers[1].data), "table[aria-label='Log directories']")
    browser.wait_for("default.replication.factor", "table[aria-label=Settings]")
    browser.type("input[type=search]", "log.cleaner.threads")
    browser.wait_for("log.cleaner.threads", "table[aria-label=Settings]")
    browser.find("button[aria-label='Change log.cleaner.threads']").click()
    browser.type("#field-value", "2")
    browser.click("Save")
    browser.wait_for("log.cleaner.threads was changed.")


def test_partitions_are_moved_by_a_plan_and_progress_is_shown(
    browser: Browser, console: ConsoleProcess, admin: Admin, cluster: Cluster
) -> None:
    """A broker is emptied of a topic: the plan says what moves before it does, and the page shows how far it is."""
    admin.create_topic("moving", 6, 2)
    with Producer(cluster.bootstrap_servers) as producer:
        for number in range(600):
            producer.send("moving", "x" * 1000, partition=number % 6)
    browser.open("/brokers")
    browser.click("Move partitions")
    browser.wait_for("Broker 2", ".choices")
    browser.type("#topics", "mov*")
    browser.click("Work out a plan")
    browser.wait_for("Nothing has to be moved.")
    browser.find("#broker-2").click()
    browser.type("#replicas", "3")
    browser.click("Work out a plan")
    browser.wait_for("3 replicas need 3 brokers, and 2 are chosen.", ".form-error")
    browser.type("#replicas", "")
    browser.click("Work out a plan")
    browser.wait_for("to copy.", "h2")
    planned = browser.run("return document.querySelectorAll('table[aria-label=Moves] tbody tr').length")
    assert 0 < planned <= 6
    held = sum(2 in info.replicas for info in admin.describe_topics("moving")[0].partitions)
    assert held, "a plan changes nothing"
    browser.click(f"Move {planned} partitions")
    browser.type("#field-confirm", str(planned))
    browser.click("Move", "dialog button")
    browser.wait_for("Reassignments under way")
    wait_until(
        lambda: not any(2 in info.replicas for info in admin.describe_topics("moving")[0].partitions), "the moves"
    )
    browser.wait_for("Nothing is being moved.")
    entry = json.loads((console.process.log.parent / "console" / "audit.log").read_text().splitlines()[-1])
    assert (entry["action"], entry["outcome"], len(entry["details"]["moves"])) == ("move partitions", "done", planned)
    assert console.ask("POST", "/api/brokers/move", {"moves": [["moving", 0, []]]}).status == 400
    refused = console.ask("POST", "/api/brokers/move", {"moves": [["moving", 0, [77]]]})
    assert refused.status == 409
    assert "moving-0" in refused.json["error"]


def test_an_open_transaction_is_shown_and_aborted(browser: Browser, admin: Admin, cluster: Cluster) -> None:
    admin.create_topic("invoices", 1, 3)
    producer: Producer[str, str] = Producer(cluster.bootstrap_servers, transactional_id="stuck")
    aborted = False
    try:
        with producer.transaction():
            producer.send("invoices", "over")
        with pytest.raises(TransactionAborted), producer.transaction():
            producer.send("invoices", "x")
            producer.flush()
            with Producer(cluster.bootstrap_servers, transactional_id="over") as other, other.transaction():
                other.send("invoices", "an end")
            browser.open("/transactions")
            browser.wait_for("Ongoing", "tbody")
            browser.wait_for("CompleteCommit", "tbody")
            assert browser.run("return document.querySelectorAll('tbody button').length") == 1  # of the open one
            browser.click("Abort")
            browser.type("#field-confirm", "stuck")
            browser.click("Abort", "dialog button")
            browser.wait_for("The transaction was aborted.")
            aborted = True
            producer.send("invoices", "y")
    finally:
        producer.close(5)
    assert aborted


def test_what_pipelines_report_is_drawn(browser: Browser, cluster: Cluster, admin: Admin, orders: str) -> None:
    report = {"query": "shop.revenue", "batch": 1, "at": "2026-01-31T10:00:00.000Z", "seconds": 0.5, "rows": 1200}
    report |= {"rows_per_second": 2400.0, "lag": 7, "topics": ["orders"], "steps": ["by_hour"], "sink": "lake/revenue"}
    report |= {"dead_letters": 1, "letters": [["orders", 0, 3]]}
    if PIPELINE_METRICS in [each.name for each in admin.topics()]:  # another file's tests have reported
        admin.delete_topics(PIPELINE_METRICS)
    browser.open("/pipelines")
    browser.wait_for("No pipeline has reported yet.")
    with Producer(cluster.bootstrap_servers) as producer:
        producer.send(PIPELINE_METRICS, json.dumps({**report, "kind": "pipeline", "format": "delta"}))
        for junk in ("no JSON", "[]", '{"query": 5}', '{"query": "x", "topics": "y", "rows": {}}', None):
            producer.send(PIPELINE_METRICS, junk)
    browser.wait_for("shop.revenue")
    browser.wait_for("2,400/s")
    browser.wait_for("no batch lately")
    drawn = browser.run("return [...document.querySelectorAll('.graph svg text')].map((each) => each.textContent)")
    assert {"orders", "by_hour", "lake/revenue", "delta"} <= set(drawn)
    browser.wait_for("Why is in the table lake/revenue_dead.")
    browser.click("orders, partition 0, offset 3", ".letters a")
    browser.wait_for("Send again", ".detail")


def test_retention_and_security_without_an_authorizer(browser: Browser, orders: str) -> None:
    browser.open("/retention")
    browser.wait_for(orders, "table[aria-label^=Retention]")
    browser.wait_for("7 d", "table[aria-label^=Retention]")
    browser.open("/security")
    browser.wait_for("Security is off.")
    browser.click("Add user")
    browser.type("#field-name", "alice")
    browser.type("#field-password", "secret-of-alice")
    browser.click("Save")
    browser.wait_for("User alice can log in.")
    browser.wait_for("SCRAM-SHA-512", "table[aria-label=Users]")
    browser.click("Set quota")
    browser.type("#field-name", "alice")
    browser.type("#field-value", "1000000")
    browser.click("Save")
    browser.wait_for("producer_byte_rate", "table[aria-label=Quotas]")
