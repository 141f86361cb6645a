"""`barnabas configs` against a live broker, beside Apache Kafka's kafka-configs on the same broker."""

from __future__ import annotations

import json
from functools import partial
from typing import TYPE_CHECKING

import pytest

from tests.support import java

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
    from subprocess import CompletedProcess

    from tests.compat.cli.conftest import Cli
    from tests.compat.conftest import TopicMaker

    Ours = Callable[..., CompletedProcess[str]]


@pytest.fixture
def configs(cli: Cli, bootstrap: str) -> Ours:
    return partial(cli, "configs", "--bootstrap-server", bootstrap)


@pytest.fixture
def kafka_configs(bootstrap: str) -> Callable[..., str]:
    return partial(java.tool, "4.3.0", "configs", "--bootstrap-server", bootstrap)


def test_settings_of_topics_agree_with_kafka_configs(
    configs: Ours, kafka_configs: Callable[..., str], new_topic: TopicMaker
) -> None:
    """One topic is changed by each tool in the same way; both tools then say the same of both."""
    ours, theirs = new_topic(), new_topic()
    change = ("--add-config", "cleanup.policy=[compact,delete],retention.ms=1000")
    changed = configs("--alter", "--topic", ours, *change)
    assert (changed.returncode, changed.stderr) == (0, "")
    told = kafka_configs("--alter", "--entity-type", "topics", "--entity-name", theirs, *change)
    assert changed.stdout.replace(ours, theirs) == told
    for words in ((), ("--all",)):
        shared = ("--describe", "--entity-type", "topics", "--entity-name", theirs, *words)
        described = configs(*shared)
        assert (described.returncode, described.stderr) == (0, "")
        assert described.stdout == kafka_configs(*shared)
    mine = configs("--describe", "--topic", ours).stdout
    assert mine.replace(ours, theirs) == configs("--describe", "--topic", theirs).stdout
    assert "  cleanup.policy=compact,delete sensitive=false synonyms={DYNAMIC_TOPIC_CONFIG:" in mine


def test_settings_of_brokers_agree_with_kafka_configs(configs: Ours, kafka_configs: Callable[..., str]) -> None:
    added = configs("--alter", "--broker-defaults", "--add-config", "log.cleaner.threads=2")
    assert added.stdout == "Completed updating default config for brokers in the cluster.\n", added.stderr
    try:
        for words in (("--entity-type", "brokers"), ("--entity-type", "brokers", "--entity-name", "1", "--all")):
            described = configs("--describe", *words)
            assert (described.returncode, described.stderr) == (0, "")
            assert described.stdout == kafka_configs("--describe", *words)
        (defaults,) = json.loads(configs("--describe", "--broker-defaults", "--json").stdout)
        assert {setting["name"]: setting["value"] for setting in defaults["configs"]}["log.cleaner.threads"] == "2"
    finally:
        configs("--alter", "--broker-defaults", "--delete-config", "log.cleaner.threads")
    assert "log.cleaner.threads" not in configs("--describe", "--broker-defaults").stdout


def test_settings_of_groups_agree_with_kafka_configs(
    configs: Ours, kafka_configs: Callable[..., str], unused_topic: str
) -> None:
    """A group need not be there to have settings."""
    ours, theirs = f"ours-{unused_topic}", f"theirs-{unused_topic}"
    change = ("--add-config", "consumer.session.timeout.ms=5000,share.auto.offset.reset=earliest")
    changed = configs("--alter", "--group", ours, *change)
    assert (changed.returncode, changed.stderr) == (0, "")
    told = kafka_configs("--alter", "--entity-type", "groups", "--entity-name", theirs, *change)
    assert changed.stdout.replace(ours, theirs) == told
    for words in ((), ("--all",)):
        shared = ("--describe", "--entity-type", "groups", "--entity-name", ours, *words)
        described = configs(*shared)
        assert (described.returncode, described.stderr) == (0, "")
        assert described.stdout == kafka_configs(*shared)
    assert "  consumer.session.timeout.ms=5000 sensitive=false synonyms={DYNAMIC_GROUP_CONFIG:" in described.stdout
    refused = configs("--alter", "--group", ours, "--add-config", "consumer.session.timeout.ms=60001")
    assert refused.returncode == 1
    assert "must be less than or equal to group.consumer.max.session.timeout.ms" in refused.stderr


def test_settings_from_a_file_and_back_to_the_default(configs: Ours, new_topic: TopicMaker, tmp_path: Path) -> None:
    topic = new_topic()
    file = tmp_path / "topic.properties"
    file.write_text("retention.ms=5000\nsegment.ms=60000\n")
    assert configs("--alter", "--topic", topic, "--add-config-file", file).returncode == 0
    assert configs("--alter", "--topic", topic, "--delete-config", "segment.ms,max.message.bytes").returncode == 0
    (found,) = json.loads(configs("--describe", "--topic", topic, "--json").stdout)
    assert {setting["name"]: setting["value"] for setting in found["configs"]} == {"retention.ms": "5000"}


def test_what_is_refused_is_told_in_one_line(configs: Ours, new_topic: TopicMaker, unused_topic: str) -> None:
    topic = new_topic()
    for words, complaint in (
        (("--alter", "--topic", topic, "--add-config", "retention.ms=soon"), "retention.ms"),
        (("--alter", "--topic", topic, "--add-config", "no.such.config=1"), "no.such.config"),
        (("--alter", "--topic", unused_topic, "--add-config", "retention.ms=1"), ""),
        (("--describe", "--topic", unused_topic), f"The topic '{unused_topic}' doesn't exist"),
        (("--describe", "--broker", "77"), "The broker '77' doesn't exist"),
    ):
        refused = configs(*words)
        assert refused.returncode == 1
        assert refused.stderr.startswith("Error: ")
        assert refused.stderr.count("\n") == 1
        assert complaint in refused.stderr
