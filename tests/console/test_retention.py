"""The page of retention: what is asked for it, and how soon a change is seen there."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import anyio

from barnabas.clients import Admin
from barnabas.console.cluster.connections import Connections
from barnabas.console.cluster.observer import Observer
from barnabas.console.cluster.retention import KEYS, describe_retention
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    import pytest

    from barnabas.testing import Cluster
    from tests.support.consoles import ConsoleProcess


def row(console: ConsoleProcess, topic: str) -> dict[str, Any] | None:
    found = console.ask("GET", "/api/retention").json["topics"]
    return next((each for each in found if each["name"] == topic), None)


def test_settings_are_seen_of_new_topics_and_after_changes(console: ConsoleProcess, cluster: Cluster) -> None:
    """Those of a topic that is new at once, though answers are kept for some seconds."""
    for name, kept in (("kept-a", "1000"), ("kept-b", "2000")):
        assert console.ask("POST", "/api/topics", {"name": name, "settings": {"retention.ms": kept}}).status == 200
        found = wait_until(lambda name=name: row(console, name), "the topic to be listed")  # type: ignore[misc]
        assert found["retention.ms"] == kept
    changed = console.ask("PATCH", "/api/topics/kept-a/settings", {"set": {"retention.ms": "3000"}})
    assert changed.status == 200, changed
    wait_until(lambda: (row(console, "kept-a") or {}).get("retention.ms") == "3000" or None, "the change")


def test_however_many_pages_are_open_brokers_are_asked_once(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each page had all settings of all topics sent every ten seconds, with where each value is from."""
    asked: list[int] = []

    def counted(cluster: Any, topics: Any) -> Any:
        asked.append(len(topics))
        return describe_retention(cluster, topics)

    monkeypatch.setattr("barnabas.console.cluster.observer.describe_retention", counted)
    with Admin(cluster.bootstrap_servers) as admin:
        admin.create_topic("kept-once", 1, 3)

    async def look() -> None:
        observer = Observer(Connections(cluster.bootstrap_servers, {}))
        try:
            found = await observer.retention()
            assert set(found["kept-once"]) == set(KEYS)
            for _ in range(5):
                assert await observer.retention() is found
            assert len(asked) == 1
        finally:
            observer.close()

    anyio.run(look)
