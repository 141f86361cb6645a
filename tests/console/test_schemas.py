"""Records by the schemas of a registry, and the page of schemas."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from barnabas.clients import Admin, Producer
from tests.console.test_appearance import find_violations
from tests.support.consoles import Browser, ConsoleProcess, running_console
from tests.support.registry import HOSTILE, FakeRegistry, framed, order, running_registry

if TYPE_CHECKING:
    from collections.abc import Iterator

    from barnabas.testing import Cluster


@pytest.fixture(scope="module")
def registry() -> Iterator[FakeRegistry]:
    with running_registry() as registry:
        yield registry


@pytest.fixture(scope="module")
def with_registry(
    cluster: Cluster, registry: FakeRegistry, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ConsoleProcess]:
    options = ("--registry", registry.with_password)
    with running_console(tmp_path_factory.mktemp("registry"), cluster.bootstrap_servers, *options) as console:
        yield console


def test_protobuf_is_read_filtered_and_its_schema_looked_at(
    browser: Browser, cluster: Cluster, registry: FakeRegistry, with_registry: ConsoleProcess
) -> None:
    browser.address = with_registry.address
    with Admin(cluster.bootstrap_servers) as admin, Producer(cluster.bootstrap_servers) as producer:
        admin.create_topic("shop-orders", 1, 3)
        for number in range(5):
            producer.send("shop-orders", framed(2, b"\x02\x02" + order(f"customer-{number}", 100 * number)))
    browser.open("/topics/shop-orders/messages?filter=value.total.cents%20%3E%20300")
    browser.wait_for("1 record found", ".scan")
    browser.wait_for('"customer": "customer-4"', ".records")
    browser.open("/")
    browser.click("Schemas")
    browser.wait_for("orders-value", "tbody")
    browser.type("input[type=search]", "<img")
    browser.wait_until_gone("orders-value", "tbody")
    browser.click(HOSTILE)
    browser.wait_for("AVRO", ".tiles")
    browser.wait_for('"name": "a"', "pre")
    browser.open("/schemas?subject=orders-value")
    browser.wait_for("2 of 2", ".tiles")
    browser.wait_for("BACKWARD", ".tiles")
    browser.wait_for("shop/money.proto")
    browser.wait_for("<script>", "pre")
    browser.choose("select[aria-label=Version]", "1")
    browser.wait_for("1 of 2", ".tiles")
    assert browser.run("return window.harmed ?? null") is None
    assert not find_violations(browser)
    assert registry.asked
    assert with_registry.ask("GET", "/api/schema?subject=nobody").status == 404
    assert with_registry.ask("GET", "/api/schema?subject=orders-value&version=../1").status == 404
