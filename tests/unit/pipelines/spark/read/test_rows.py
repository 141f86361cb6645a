"""Messages as Arrow batches: every column, and what is not there."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass

import pyarrow as pa
import pytest

from barnabas.pipelines.spark.read.rows import record_schema, to_batch


@dataclass(frozen=True)
class Message:
    """What confluent-kafka hands out, as far as rows need it."""

    at: int
    content: bytes | None = b"v"
    name: bytes | None = None
    time: tuple[int, int] = (1, 1_700_000_000_123)
    pairs: list[tuple[str, bytes | None]] | None = None

    def key(self) -> bytes | None:
        return self.name

    def value(self) -> bytes | None:
        return self.content

    def topic(self) -> str:
        return "köln"

    def partition(self) -> int:
        return 3

    def offset(self) -> int:
        return self.at

    def timestamp(self) -> tuple[int, int]:
        return self.time

    def headers(self) -> list[tuple[str, bytes | None]] | None:
        return self.pairs


def columns(*messages: Message) -> dict[str, list[object]]:
    batch = to_batch(messages, record_schema(include_headers=True))
    batch.validate(full=True)
    times = batch.column("timestamp").cast(pa.int64())
    return {**batch.to_pydict(), "timestamp": times.to_pylist()}


def test_each_column_has_what_the_messages_have() -> None:
    found = columns(Message(7, b"", b"k"), Message(9, b"\x00long", b"", pairs=[("h", b"1"), ("h", None)]))
    assert found == {
        "key": [b"k", b""],
        "value": [b"", b"\x00long"],
        "topic": ["köln", "köln"],
        "partition": [3, 3],
        "offset": [7, 9],
        "timestamp": [1_700_000_000_123_000] * 2,
        "timestampType": [0, 0],
        "headers": [None, [{"key": "h", "value": b"1"}, {"key": "h", "value": None}]],
    }


@pytest.mark.parametrize("values", [(None, None), (b"a", None), (None, b"b")], ids=["none", "first", "second"])
def test_keys_and_values_may_be_missing(values: tuple[bytes | None, bytes | None]) -> None:
    messages = [Message(at, value, value) for at, value in enumerate(values)]
    assert columns(*messages)["value"] == columns(*messages)["key"] == list(values)


def test_times_may_be_of_either_kind_missing_or_beyond_what_spark_holds() -> None:
    times = [(1, 1), (2, 2), (0, -1), (1, 2**62)]
    found = columns(*(Message(at, time=time) for at, time in enumerate(times)))
    assert found["timestamp"] == [1_000, 2_000, None, None]
    assert found["timestampType"] == [0, 1, -1, 0]
    assert columns(Message(0, time=(1, -5)), Message(1, time=(2, 0)))["timestamp"] == [-5_000, 0]


def test_nothing_loads_what_workers_of_spark_need_not_hold() -> None:
    """pandas would cost each of them some 35 MB, pyarrow.compute 7 MB."""
    code = "import sys; from tests.unit.pipelines.spark.read.test_rows import Message"
    code += "; from barnabas.pipelines.spark.read.rows import *"
    made = "to_batch([Message(1), Message(2, b'x')], RECORD_SCHEMA)"
    told = f"{code}; {made}; sys.exit(bool({{'pandas', 'pyarrow.compute'}} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", told], check=False).returncode == 0
