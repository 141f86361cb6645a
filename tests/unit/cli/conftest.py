"""A cluster in memory for the command line, and a way to run commands in this process."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

from barnabas.cli.common import connection, output
from barnabas.cli.main import cli
from barnabas.clients.admin.topics import ConfigValue, NewTopic, PartitionInfo, TopicInfo
from barnabas.clients.errors import RequestRefused
from barnabas.clients.wire.topic_list import ListedTopic
from barnabas.model.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from click.testing import Result

Run = Callable[..., "Result"]


def _check_limit(partitions: int) -> None:
    if partitions > 10_000:
        raise RequestRefused(ErrorCode.policy_violation, "Excessively large number of partitions per request.")


class FakeAdmin:
    """What `clients.admin.Admin` does, on dictionaries."""

    def __init__(self) -> None:
        self.cluster: dict[str, TopicInfo] = {}
        self.configs: dict[str, dict[str, str]] = {}
        self.brokers = frozenset({0})

    def add(self, name: str, partitions: int = 1, **configs: str) -> None:
        self.create_topic(
            NewTopic(
                name=name,
                partitions=partitions,
                configs={key.replace("_", "."): value for key, value in configs.items()},
            )
        )

    def change(self, name: str, partition: int, *, leader: int | None, replicas: list[int], isr: list[int]) -> None:
        topic = self.cluster[name]
        changed = PartitionInfo(partition=partition, leader=leader, replicas=tuple(replicas), isr=tuple(isr))
        partitions = (*topic.partitions[:partition], changed, *topic.partitions[partition + 1 :])
        self.cluster[name] = replace(topic, partitions=partitions)

    def topic_names(self) -> list[str]:
        return sorted(self.cluster)

    def topics(self) -> list[TopicInfo]:
        return [self.cluster[name] for name in self.topic_names()]

    def listed(self) -> list[ListedTopic]:
        return [ListedTopic(topic.name, len(topic.partitions), topic.replication_factor) for topic in self.topics()]

    def live_brokers(self) -> frozenset[int]:
        return self.brokers

    def describe_topics(self, names: Iterable[str]) -> list[TopicInfo]:
        wanted = list(names)
        if missing := [name for name in wanted if name not in self.cluster]:
            raise RequestRefused(ErrorCode.unknown_topic_or_partition, f"there is no topic {missing[0]}")
        return [self.cluster[name] for name in wanted]

    def topic_configs(self, names: Iterable[str]) -> dict[str, list[ConfigValue]]:
        defaults = {"compression.type": "producer", "min.insync.replicas": "1"}
        return {
            name: [
                ConfigValue(name=key, value=value, default=key not in self.configs[name])
                for key, value in (defaults | self.configs[name]).items()
            ]
            for name in names
        }

    def create_topic(self, topic: NewTopic) -> None:
        _check_limit(topic.partitions or 1)
        if topic.name in self.cluster:
            raise RequestRefused(ErrorCode.topic_already_exists, f"Topic '{topic.name}' already exists.")
        assignment = topic.assignment or [[0]] * (topic.partitions or 1)
        self.cluster[topic.name] = TopicInfo(name=topic.name, topic_id=f"id-of-{topic.name}", partitions=())
        self.configs[topic.name] = dict(topic.configs)
        self._grow(topic.name, assignment)

    def create_partitions(self, topic: str, total: int, assignment: Sequence[Sequence[int]] = ()) -> None:
        missing = total - len(self.cluster[topic].partitions)
        if missing <= 0:
            raise RequestRefused(ErrorCode.invalid_partitions, f"Topic {topic} would not grow.")
        _check_limit(missing)
        self._grow(topic, assignment or [[0]] * missing)

    def alter_topic_config(self, topic: str, *, set_: Mapping[str, str], delete: Iterable[str] = ()) -> None:
        self.configs[topic].update(set_)
        for key in delete:
            self.configs[topic].pop(key)

    def delete_topics(self, names: Iterable[str]) -> None:
        for name in names:
            del self.cluster[name]

    def _grow(self, name: str, assignment: Sequence[Sequence[int]]) -> None:
        topic = self.cluster[name]
        grown = [
            PartitionInfo(partition=number, leader=replicas[0], replicas=tuple(replicas), isr=tuple(replicas))
            for number, replicas in enumerate(assignment, len(topic.partitions))
        ]
        self.cluster[name] = replace(topic, partitions=(*topic.partitions, *grown))


class FakeCluster:
    """What `ClusterAdmin` does, with areas that a test chooses."""

    def __init__(self, **areas: object) -> None:
        self.__dict__.update(areas)

    def __enter__(self) -> FakeCluster:
        return self

    def __exit__(self, *_: object) -> None:
        pass


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> FakeAdmin:
    """A cluster in memory, which every command that connects is given."""
    admin = FakeAdmin()
    found = FakeCluster(topics=admin, list_topics=admin.listed)
    monkeypatch.setattr(connection, "open_cluster", lambda *_: found)
    return admin


@pytest.fixture
def run() -> Run:
    """`run("topics", "--list")`: the result has exit_code, stdout and stderr."""
    return lambda *words, **options: CliRunner().invoke(
        cli, [str(word) for word in words], prog_name="barnabas", **options
    )


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Output goes to a person."""
    monkeypatch.setattr(output, "_to_a_person", lambda: True)
    monkeypatch.setenv("COLUMNS", "100")
