"""Java's verifiable producer and consumer, while a cluster fails: nothing that was acknowledged is lost or repeated."""

from __future__ import annotations

import json
import signal
from typing import TYPE_CHECKING, Any, Final

import pytest

from tests.history.faults import LOSE_STORE, STRAND, Nemesis, short_plan
from tests.history.run import PARTITIONS, TOPIC, on_hosts
from tests.support import java
from tests.support.processes import Process
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from pathlib import Path

SEED: Final = 7
KINDS: Final = (
    "kill leader",
    "freeze controller",
    "slow follower",
    "stop controller",
    "kill all",
    "freeze all",
    STRAND,
    "drag leader",
    "fill follower",
    "shift controller",
    "kill store",
    "freeze store",
    LOSE_STORE,
    "isolate leader",
    "deafen controller",
    "mute leader",
    "part follower",
    "unmoor controller",
    "move leader",
)
"""One of each kind; with the other roles they strike librdkafka's clients."""
_FLAGS: Final = ("-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")


def events(tool: Process, name: str) -> list[dict[str, Any]]:
    """What a tool has told of one kind."""
    lines = [line for line in tool.output().splitlines() if line.startswith("{") and line.endswith("}")]
    return [event for event in map(json.loads, lines) if event["name"] == name]


@pytest.mark.timeout(600)
def test_every_acknowledged_record_is_consumed_once(tmp_path: Path) -> None:
    settings = tmp_path / "producer.properties"
    settings.write_text("enable.idempotence=true\nretries=1000000\nrequest.timeout.ms=5000\n")
    with on_hosts(tmp_path) as stage:
        cluster = stage.cluster
        cluster.create(TOPIC, PARTITIONS, 3, min_insync_replicas="2")
        where = ("--bootstrap-server", cluster.bootstrap, "--topic", TOPIC)
        sending = [*where, "--throughput", "100", "--acks", "-1", "--command-config", str(settings)]
        reading = [*where, "--group-id", "verifiable", "--verbose", "--reset-policy", "earliest"]

        def start(name: str, words: list[str]) -> Process:
            return Process(name, [*java.command("4.3.0", java.TOOLS[name], *_FLAGS), *words], tmp_path / f"{name}.log")

        with start("verifiable-producer", sending) as producer, start("verifiable-consumer", reading) as consumer:
            wait_until(lambda: events(producer, "producer_send_success"), "the first acknowledgements", 60)
            nemesis = Nemesis(stage, short_plan(SEED, KINDS))
            nemesis.run()
            stage.settle(PARTITIONS)
            producer.send(signal.SIGTERM)
            producer.wait()
            acknowledged = {event["value"] for event in events(producer, "producer_send_success")}

            def read() -> dict[str, set[tuple[int, int]]]:
                places: dict[str, set[tuple[int, int]]] = {}
                for event in events(consumer, "record_data"):
                    places.setdefault(event["value"], set()).add((event["partition"], event["offset"]))
                return places

            wait_until(lambda: acknowledged <= read().keys(), "everything to be consumed", 120, every=0.5)
            found = read()
    assert sorted(nemesis.struck) == sorted(KINDS)
    assert len(acknowledged) > 1000
    assert not events(producer, "producer_send_error")
    assert {value: places for value, places in found.items() if len(places) > 1} == {}
    taken = [place for places in found.values() for place in places]
    assert len(taken) == len(set(taken))
