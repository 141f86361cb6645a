from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from barnabas.cli.common.failures import Failed
from barnabas.cli.reassign.plans import Plan, as_text, read_plan, read_topics
from barnabas.clients.admin.replicas import Replica
from barnabas.model.ids import TopicPartition

if TYPE_CHECKING:
    from pathlib import Path

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


def written(folder: Path, text: str) -> Path:
    file = folder / "plan.json"
    file.write_text(text)
    return file


def test_a_plan(tmp_path: Path) -> None:
    text = (
        '{"partitions": [{"topic": "t", "partition": 0, "replicas": [1, 2], "log_dirs": ["any", "/b"]},'
        ' {"topic": "t", "partition": 1, "replicas": [3]}], "version": 1}'
    )
    plan = read_plan(written(tmp_path, text))
    assert plan == Plan({T0: (1, 2), T1: (3,)}, {Replica(2, T0): "/b"})
    assert plan.brokers == {1, 2, 3}
    assert plan.topics == ["t"]


def test_what_is_written_can_be_read(tmp_path: Path) -> None:
    replicas, directories = {T1: (3,), T0: (1, 2)}, {Replica(1, T0): "/a"}
    text = as_text(replicas, directories)
    assert text == (
        '{"version":1,"partitions":[{"topic":"t","partition":0,"replicas":[1,2],"log_dirs":["/a","any"]},'
        '{"topic":"t","partition":1,"replicas":[3],"log_dirs":["any"]}]}'
    )
    assert read_plan(written(tmp_path, text)) == Plan(replicas, directories)


def entry(**fields: object) -> str:
    return json.dumps({"partitions": [{"topic": "t", "partition": 0, "replicas": [1], **fields}]})


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("{", "is not of the form"),
        ("[]", "is not of the form"),
        ('{"partitions": [1]}', "an entry has no topic"),
        ('{"partitions": []}', "the list of partitions is empty"),
        ("{}", "the list of partitions is empty"),
        ('{"version": 2, "partitions": []}', "has version 2; only 1 is known"),
        ('{"partitions": [{"topic": "t", "partition": 0}]}', "a partition is not of the form"),
        (entry(partition="one"), "a partition is not of the form"),
        (entry(replicas=[]), "t-0 has no replicas"),
        (entry(replicas=[1, 2, 1]), "t-0 has broker 1 more than once"),
        (entry(log_dirs=["any", "/b"]), "t-0 has 1 replicas but 2 log_dirs"),
        (
            '{"partitions": [{"topic": "t", "partition": 0, "replicas": [1]},'
            ' {"topic": "t", "partition": 0, "replicas": [2]}]}',
            "t-0 is listed more than once",
        ),
    ],
)
def test_plans_that_cannot_be_suggest_command(tmp_path: Path, text: str, complaint: str) -> None:
    with pytest.raises(Failed, match=complaint):
        read_plan(written(tmp_path, text))


def test_topics(tmp_path: Path) -> None:
    assert read_topics(written(tmp_path, '{"topics": [{"topic": "a"}, {"topic": "b"}], "version": 1}')) == ["a", "b"]
    with pytest.raises(Failed, match="a is listed more than once"):
        read_topics(written(tmp_path, '{"topics": [{"topic": "a"}, {"topic": "a"}]}'))
    with pytest.raises(Failed, match=r'is not of the form \{"version": 1, "topics"'):
        read_topics(written(tmp_path, '{"topics": ["a"]}'))
