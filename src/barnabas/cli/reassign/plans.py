"""Plans as files: which partition goes to which brokers, and there perhaps into which directory.

Kafka's JSON, with a version that has been 1 for ever:

    {"version": 1, "partitions": [{"topic": "t", "partition": 0, "replicas": [1, 2], "log_dirs": ["any", "/disk2"]}]}
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from barnabas.cli.common.failures import Failed
from barnabas.cli.common.values.files import read_text
from barnabas.clients.admin.replicas import Replica
from barnabas.model.ids import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

VERSION: Final = 1
ANY: Final = "any"
"""The directory that a broker chooses."""
_EXAMPLE: Final = '{"topic": "t", "partition": 0, "replicas": [1, 2]}'


@dataclass(frozen=True, slots=True)
class Plan:
    """Where partitions shall be; directories are there for replicas that do not take any."""

    replicas: dict[TopicPartition, tuple[int, ...]]
    directories: dict[Replica, str]

    @property
    def brokers(self) -> set[int]:
        """All brokers that get something."""
        return {broker for replicas in self.replicas.values() for broker in replicas}

    @property
    def topics(self) -> list[str]:
        """All topics, sorted."""
        return sorted({partition.topic for partition in self.replicas})


def read_plan(file: Path) -> Plan:
    """The plan in a file; raises Failed for one that cannot be meant."""
    partitions = _read(file, "partitions", _EXAMPLE)
    replicas: list[tuple[TopicPartition, tuple[int, ...]]] = []
    directories: dict[Replica, str] = {}
    try:
        for one in partitions:
            partition = TopicPartition(str(one["topic"]), int(one["partition"]))
            brokers = tuple(int(broker) for broker in one["replicas"])
            paths = [str(path) for path in one.get("log_dirs", [ANY] * len(brokers))]
            if len(paths) != len(brokers):
                raise Failed(
                    f"{file}: {partition} has {len(brokers)} replicas but {len(paths)} log_dirs; give one for each."
                )
            replicas.append((partition, brokers))
            for broker, path in zip(brokers, paths, strict=True):
                if path != ANY:
                    directories[Replica(broker, partition)] = path
    except (KeyError, TypeError, ValueError) as error:
        raise Failed(f"{file}: a partition is not of the form {_EXAMPLE} ({error!r}).") from error
    _refuse_repeated(file, replicas)
    return Plan(dict(replicas), directories)


def _refuse_repeated(file: Path, replicas: list[tuple[TopicPartition, tuple[int, ...]]]) -> None:
    if not replicas:
        raise Failed(f"{file}: the list of partitions is empty.")
    twice = _repeated(partition for partition, _ in replicas)
    if twice:
        raise Failed(f"{file}: {', '.join(map(str, twice))} is listed more than once.")
    for partition, brokers in replicas:
        if not brokers:
            raise Failed(f"{file}: {partition} has no replicas.")
        same = _repeated(brokers)
        if same:
            raise Failed(f"{file}: {partition} has broker {same[0]} more than once.")


def read_topics(file: Path) -> list[str]:
    """The topics in a file for --generate; raises Failed."""
    topics = [str(one["topic"]) for one in _read(file, "topics", '{"topic": "t"}')]
    twice = _repeated(topics)
    if twice:
        raise Failed(f"{file}: {', '.join(twice)} is listed more than once.")
    return topics


def _repeated(values: Iterable[Any]) -> list[Any]:
    return [value for value, count in Counter(values).items() if count > 1]


def _read(file: Path, key: str, example: str) -> list[dict[str, Any]]:
    form = f'{{"version": {VERSION}, "{key}": [{example}]}}'
    try:
        document = json.loads(read_text(file))
        version = document.get("version", VERSION)
        listed = list(document.get(key, []))
        if not all(isinstance(one, dict) and "topic" in one for one in listed):
            raise ValueError("an entry has no topic")
    except (ValueError, AttributeError, TypeError) as error:
        raise Failed(f"{file} is not of the form {form} ({error}).") from error
    if version != VERSION:
        raise Failed(f"{file} has version {version}; only {VERSION} is known.")
    return listed


def as_text(replicas: Mapping[TopicPartition, tuple[int, ...]], directories: Mapping[Replica, str]) -> str:
    """A plan as one line of JSON, as Kafka writes it."""
    document = {
        "version": VERSION,
        "partitions": [
            {
                "topic": partition.topic,
                "partition": partition.partition,
                "replicas": list(brokers),
                "log_dirs": [directories.get(Replica(broker, partition), ANY) for broker in brokers],
            }
            for partition, brokers in sorted(replicas.items())
        ],
    }
    return json.dumps(document, separators=(",", ":"), ensure_ascii=False)
