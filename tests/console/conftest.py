"""One cluster, one console and one browser for all tests of the console, and another pair where people log in."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

import pytest

from barnabas.clients import Admin
from barnabas.testing import Cluster
from barnabas.testing.secure import KafkaSecure, SecureBroker
from tests.support.consoles import Browser, ConsoleProcess, running_browser, running_console
from tests.support.steady_load import TOPIC, steady_load

if TYPE_CHECKING:
    from collections.abc import Iterator

METRICS: Final = r"Metrics are at (http://\S+/metrics)"


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    """Three brokers at work: records come and are read while pages are looked at and brokers die."""
    with Cluster({"controlled.shutdown.enable": False, "metrics.listener": "127.0.0.1:0"}, brokers=3) as cluster:
        with Admin(cluster.bootstrap_servers) as admin:
            admin.create_topic(TOPIC, 3, 3)
        with steady_load(cluster.bootstrap_servers):
            yield cluster


@pytest.fixture(scope="session")
def console(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ConsoleProcess]:
    folder = tmp_path_factory.mktemp("console")
    masks = ("--mask", "cards*:value.card.number", "--mask", "cards*:headers.token")
    addresses = [address for broker in cluster.brokers for address in re.findall(METRICS, broker.log())[-1:]]
    metrics = [word for address in addresses for word in ("--metrics", address)]
    with running_console(folder, cluster.bootstrap_servers, "--telemetry", *masks, *metrics) as console:
        yield console


@pytest.fixture(scope="session")
def secure() -> Iterator[KafkaSecure]:
    """A broker that asks for a login."""
    with SecureBroker() as broker, KafkaSecure(broker, "console") as kafka:
        yield kafka


@pytest.fixture(scope="session")
def guarded(secure: KafkaSecure, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ConsoleProcess]:
    """A console of that one, which asks for the login of a user."""
    folder = tmp_path_factory.mktemp("guarded")
    config = folder / "console.properties"
    config.write_text(f"security.protocol=SASL_SSL\nssl.ca.location={secure.ca}\n")
    with running_console(folder, secure.bootstrap_servers, "--command-config", str(config)) as console:
        yield console


@pytest.fixture(scope="session")
def chromium() -> Iterator[Browser]:
    with running_browser() as browser:
        yield browser


@pytest.fixture
def browser(chromium: Browser, console: ConsoleProcess) -> Iterator[Browser]:
    chromium.address = console.address
    chromium.resize(1280)
    chromium.prefer("light")
    chromium.complaints()
    yield chromium
    complaints = chromium.complaints()
    chromium.driver.get("about:blank")
    assert not complaints
