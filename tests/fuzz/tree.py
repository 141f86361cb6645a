"""A metadata tree with one node that holds something else than it should: a start says which node that is, or goes on.

The nodes are those of a broker that has topics, settings and producers. One of them at a time gets bytes that are no
JSON, JSON of another type, a field less, or a field of another type or far out of range. Then a broker is
started on it. It starts, or it fails with a message that names the node; a traceback does neither.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import sqlite3
from collections import Counter
from contextlib import closing
from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from barnabas.metadata.znodes import ClusterIdNode
from barnabas.model.errors import BarnabasError
from tests.fuzz.broker import running_broker
from tests.fuzz.canary import create_topic
from tests.fuzz.rules import BrokenRule, LogWatch

if TYPE_CHECKING:
    from pathlib import Path

TOPIC: Final = "topic"
OTHER_CLUSTER: Final = "belongs to cluster"
"""What a start says where the cluster's id is one, but not that of the log directory."""
STRANGE: Final[tuple[Any, ...]] = (
    None,
    True,
    0,
    -1,
    1 << 40,
    1 << 70,
    1.5,
    "",
    "text",
    "9" * 5000,
    [],
    [None],
    ["a"],
    [1, 1],
    [[1]],
    {},
    {"a": None},
    {"0": "x"},
    {"0": [1], "2": [1]},
)
"""Values that stand where others should."""
NO_JSON: Final = (
    b"",
    b"\xff\xfe",
    b"{",
    b"null",
    b"[]",
    b"7",
    b'"text"',
    b"{}",
    b'{"version":1}',
    b"[" * 100_000,
    b"\0" * 30,
)


class Change(NamedTuple):
    """A node, and what it holds now."""

    path: str
    data: bytes


@dataclass
class Figures:
    """What a run saw."""

    seed: int
    outcomes: Counter[str] = field(default_factory=Counter)

    def __str__(self) -> str:
        outcomes = ", ".join(f"{count} {name}" for name, count in sorted(self.outcomes.items()))
        return f"seed {self.seed}: {self.outcomes.total()} damaged nodes: {outcomes}"


def run(directory: Path, count: int, seed: int) -> Figures:
    """Damage `count` nodes, one at a time, and start a broker on each tree; raises BrokenRule."""
    figures, random = Figures(seed), Random(seed)
    asyncio.run(_build(directory))
    nodes = read_nodes(directory / "data.metadata")
    for number in range(count):
        copy = directory / "copy"
        shutil.rmtree(copy, ignore_errors=True)
        copy.mkdir()
        shutil.copytree(directory / "data", copy / "data")
        shutil.copy(directory / "data.metadata", copy / "data.metadata")
        change = _change(nodes, random)
        _write_node(copy / "data.metadata", change)
        case = f"node {number} of seed {seed}, {change.path} holds {change.data[:300]!r}"
        try:
            figures.outcomes[_start(copy, change)] += 1
        except BrokenRule as error:
            raise BrokenRule(f"{case}: {error}") from error
        except Exception as error:
            raise BrokenRule(f"{case}: {error!r}") from error
    return figures


async def _build(directory: Path) -> None:
    async with running_broker(directory, {}) as broker:
        await asyncio.to_thread(create_topic, broker.bootstrap, TOPIC)
        await broker.app.broker.membership.allocate_producer_ids()


def read_nodes(path: Path) -> dict[str, bytes]:
    """The nodes of a tree that hold something."""
    with closing(sqlite3.connect(path)) as connection:
        return dict(connection.execute("SELECT path, data FROM node WHERE length(data) > 0 ORDER BY path"))


def _write_node(path: Path, change: Change) -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE node SET data = ? WHERE path = ?", (change.data, change.path))


def _change(nodes: dict[str, bytes], random: Random) -> Change:
    path = random.choice(sorted(nodes))
    if random.random() < 0.3:
        return Change(path, random.choice(NO_JSON))
    if random.random() < 0.2:
        data = bytearray(nodes[path])
        data[random.randrange(len(data))] ^= 1 << random.randrange(8)
        return Change(path, bytes(data))
    value = json.loads(nodes[path])
    if not isinstance(value, dict) or not value:
        return Change(path, json.dumps(random.choice(STRANGE)).encode())
    _change_field(value, random)
    return Change(path, json.dumps(value).encode())


def _change_field(value: dict[str, Any], random: Random) -> None:
    """Remove a field or give it another value; sometimes one of a nested object."""
    key = random.choice(sorted(value))
    inner = value[key]
    if isinstance(inner, dict) and inner and random.random() < 0.6:
        _change_field(inner, random)
    elif isinstance(inner, list) and inner and random.random() < 0.4:
        inner[random.randrange(len(inner))] = random.choice(STRANGE)
    elif random.random() < 0.25:
        del value[key]
    else:
        value[key] = random.choice(STRANGE)


def _start(directory: Path, change: Change) -> str:
    async def main() -> None:
        async with running_broker(directory, {}):
            pass

    with LogWatch() as watch:
        watch.errors_are_allowed = True
        try:
            asyncio.run(main())
        except BarnabasError as error:
            watch.check("a start")
            if change.path not in str(error) and not (
                change.path == ClusterIdNode.path and OTHER_CLUSTER in str(error)
            ):
                raise BrokenRule(f"the start fails without a word of the node: {error}") from error
            return "named by the start"
        watch.check("a start")
    return "started"
