"""Changes that take something away again: what was set, allowed or begun by a page ends by a page."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from barnabas.clients import Admin, Producer
from barnabas.clients.admin.cluster_admin import ClusterAdmin
from barnabas.clients.admin.configs import EntityType
from barnabas.model.ids import TopicPartition
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from barnabas.testing import Cluster
    from barnabas.testing.secure import KafkaSecure
    from tests.support.consoles import Browser, ConsoleProcess

PASSWORD = "the-password-of-carol"


@pytest.fixture(scope="module")
def admin(cluster: Cluster) -> Iterator[ClusterAdmin]:
    with ClusterAdmin(cluster.bootstrap_servers, {}, 10) as admin:
        yield admin


@pytest.fixture
def as_boss(chromium: Browser, guarded: ConsoleProcess, secure: KafkaSecure) -> Iterator[Browser]:
    """The page of security, seen by somebody who may do everything to the cluster."""
    boss = secure.user("boss", "the-password-of-boss")
    secure.allow(boss, "All", cluster=True)
    chromium.address = guarded.address
    chromium.open("/security")
    chromium.type("#user", "boss")
    chromium.type("#password", boss.password)
    chromium.click("Log in")
    chromium.wait_for("Quotas", "main")
    yield chromium
    chromium.click("Log out")
    chromium.wait_for("Log in with a user of the cluster")


def test_users_acls_and_quotas_come_and_go(as_boss: Browser, guarded: ConsoleProcess, secure: KafkaSecure) -> None:
    """Each change shows in what carol may do then, and not only on the page."""
    browser = as_boss
    secure.admin.create_topic("of-carol-1", 1, 1)

    def log_in() -> tuple[int, str]:
        answer = guarded.ask("POST", "/api/login", {"user": "carol", "password": PASSWORD})
        return answer.status, answer.headers.get("set-cookie", "").partition(";")[0]

    def is_seen() -> bool:
        return guarded.ask("GET", "/api/topics/of-carol-1", cookie=cookie).status == 200

    browser.click("Add user")
    browser.type("#field-name", "carol")
    browser.type("#field-password", PASSWORD)
    browser.click("Save")
    browser.wait_for("User carol can log in.")
    browser.wait_for("carol", "table[aria-label=Users]")
    status, cookie = log_in()
    assert status == 200
    assert not is_seen()

    browser.click("Add ACL")
    browser.type("#field-principal", "User:carol")
    browser.choose("#field-operation", "READ")
    browser.choose("#field-kind", "TOPIC")
    browser.choose("#field-pattern", "PREFIXED")
    browser.type("#field-name", "of-carol")
    browser.click("Add", "dialog button")
    browser.wait_for("The ACL was added.")
    browser.wait_for("of-carol…", "table[aria-label=ACLs]")
    wait_until(is_seen, "carol to see her topic")
    browser.find("button[aria-label='Remove ACL of User:carol']").click()
    browser.wait_for("User:carol may READ TOPIC of-carol", "dialog")
    browser.click("Remove", "dialog button")
    browser.wait_for("The ACL was removed.")
    browser.wait_until_gone("of-carol…", "main")
    wait_until(lambda: not is_seen(), "carol to see her topic no more")

    browser.click("Set quota")
    browser.type("#field-name", "carol")
    browser.type("#field-value", "1000000")
    browser.click("Save")
    browser.wait_for("1 MB/s", "table[aria-label=Quotas]")
    browser.find("button[aria-label='Remove producer_byte_rate of user carol']").click()
    browser.click("Remove", "dialog button")
    browser.wait_for("The quota was removed.")
    browser.wait_for("No quotas.")

    browser.find("button[aria-label='Delete user carol']").click()
    assert not browser.find("dialog button.danger").is_enabled()
    browser.type("#field-confirm", "carol")
    browser.click("Delete user", "dialog button")
    browser.wait_for("User carol was deleted.")
    browser.wait_until_gone("carol", "table[aria-label=Users]")
    wait_until(lambda: log_in()[0] == 401, "carol to be kept out")


def test_a_setting_of_a_topic_returns_to_its_default(browser: Browser, cluster: Cluster, admin: ClusterAdmin) -> None:
    with Admin(cluster.bootstrap_servers) as simple:
        simple.create_topic("returning", 1, 1)
    admin.configs.alter(EntityType.TOPICS, "returning", add={"retention.ms": "60000"}, delete=())
    browser.open("/topics/returning/settings")
    change_back(browser, "retention.ms")
    assert own(admin, EntityType.TOPICS, "returning", "retention.ms") is None


def test_a_setting_of_a_broker_returns_to_its_default(browser: Browser, admin: ClusterAdmin) -> None:
    admin.configs.alter(EntityType.BROKERS, "0", add={"log.cleaner.threads": "3"}, delete=())
    browser.open("/brokers/0")
    browser.type("input[type=search]", "log.cleaner.threads")
    change_back(browser, "log.cleaner.threads")
    assert own(admin, EntityType.BROKERS, "0", "log.cleaner.threads") is None


def change_back(browser: Browser, name: str) -> None:
    """Return a setting to its default by the dialog in which it is changed."""
    browser.find(f"button[aria-label='Change {name}']").click()
    browser.choose("#field-reset", "1")
    browser.click("Save", "dialog button")
    browser.wait_for(f"{name} was changed.")
    row = browser.find(f"button[aria-label='Change {name}']")
    is_own = "return arguments[0].closest('tr').querySelector('.badge.ok') !== null"
    wait_until(lambda: not browser.run(is_own, row), "the page to show the default")


def own(admin: ClusterAdmin, kind: EntityType, name: str, setting: str) -> str | None:
    """A setting's own value, if it has one."""
    (found,) = (each for each in admin.configs.describe(kind, [name])[name] if each.name == setting)
    return found.value if found.is_dynamic_for(kind, name) else None


def test_a_move_is_cancelled_and_the_partition_stays(browser: Browser, cluster: Cluster, admin: ClusterAdmin) -> None:
    """The move is held up by a limit of bandwidth after its first megabyte."""
    place = TopicPartition("staying", 0)
    with Admin(cluster.bootstrap_servers) as simple, Producer(cluster.bootstrap_servers) as producer:
        simple.create_topic("staying", 1, 2)
        for _ in range(300):
            producer.send("staying", "x" * 10_000)
        (info,) = simple.describe_topics("staying")[0].partitions
    before = list(info.replicas)
    (outside,) = {0, 1, 2} - set(before)
    admin.configs.alter(EntityType.BROKERS, str(outside), add={"follower.replication.throttled.rate": "10"}, delete=())
    admin.configs.alter(
        EntityType.TOPICS, "staying", add={"follower.replication.throttled.replicas": f"0:{outside}"}, delete=()
    )
    try:
        assert not admin.replicas.reassign({place: [before[0], outside]})
        browser.open("/brokers")
        browser.wait_for("staying-0", "table[aria-label=Reassignments]")
        browser.click("Cancel", "table button")
        browser.wait_for("Cancel the move of staying-0?", "dialog")
        browser.click("Cancel the move", "dialog button")
        browser.wait_for("The move was cancelled.")
        browser.wait_for("Nothing is being moved.")
        assert not admin.replicas.reassignments()
        with Admin(cluster.bootstrap_servers) as simple:
            (info,) = simple.describe_topics("staying")[0].partitions
        assert list(info.replicas) == before
    finally:
        admin.configs.alter(EntityType.BROKERS, str(outside), add={}, delete=["follower.replication.throttled.rate"])
