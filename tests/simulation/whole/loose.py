"""A topic that may lose records: it has unclean elections, and its records are deleted.

What was lost in an unclean election is lost, and so is what was deleted. But after the last of both, this topic keeps
what it acknowledged like any other: replicas that came out of them with other logs must not count as in sync.

A power loss of the only replica that is in sync and up loses what was not synced, as in Kafka. This topic's ISR is so
small at times.

An unclean election also loses what the old leader acknowledges, being alone in sync, until it hears that it was
replaced, as in Kafka: a broker that was stopped for longer than its session does so for a moment when it goes on.
"""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from barnabas.model.errors import ErrorCode
from barnabas.protocol.apis import ApiKey
from barnabas.protocol.records.batch import HEADER_SIZE, read_header
from barnabas.protocol.records.records import read_records
from tests.simulation.whole.client import Unanswered
from tests.simulation.whole.producers import Producer

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.history.checker import Record as Read
    from tests.simulation.whole.history import Log
    from tests.simulation.whole.machine import Machine
    from tests.simulation.whole.store import MemoryTree

TOPIC: Final = "u"
SETTINGS: Final = {"unclean.leader.election.enable": "true", "min.insync.replicas": "1"}
STATE: Final = f"/brokers/topics/{TOPIC}/partitions/0/state"
END: Final = -1


class LooseProducer(Producer):
    """Writes records, and now and then deletes all that are committed, or those up to somewhere in its last batch."""

    forgives = True
    _middle = END
    """An offset in the batch that was stored last."""

    def _next_values(self, partition: int, sequence: int) -> list[str]:
        self._began = asyncio.get_running_loop().time()
        count = self._client.chance.choice((1, 2, 2, 5))
        return [f"{self._client.name}/{sequence + number}" for number in range(count)]

    def _stored(self, partition: int, values: list[str], base_offset: int) -> None:
        self._middle = base_offset + len(values) // 2 if base_offset >= 0 else END
        if self._client.leader_of(TOPIC, partition) in self._log.replaced:
            self._log.say(f"{self._client.name}: a leader stored {values[0]} that has been replaced")
            return
        self._log.loose.extend((self._began, value) for value in values)

    async def _between(self, partition: int) -> None:
        if self._client.chance.random() < self._log.deletions:
            await self._delete(partition)

    async def _delete(self, partition: int) -> None:
        loop = asyncio.get_running_loop()
        offset = self._client.chance.choice((END, self._middle, self._middle))
        topics = [{"name": TOPIC, "partitions": [{"partition_index": partition, "offset": offset}]}]
        try:
            answer = await self._client.ask_leader(
                TOPIC, partition, ApiKey.DELETE_RECORDS, 2, topics=topics, timeout=3000
            )
            code = ErrorCode(answer.topics[0].partitions[0].error_code.value)
            self._log.say(f"{self._client.name} deletes records of {TOPIC} before {offset}: {code.name}")
        except Unanswered:
            self._client.forget_leader(TOPIC, partition)
            await asyncio.sleep(4.0)  # whoever has the request has given it up by then
        self._log.loosened = loop.time()


class State(NamedTuple):
    """Who leads the topic's only partition, and who is in sync."""

    leader: int
    isr: list[int]


def state_of(tree: MemoryTree) -> State:
    """The state in the metadata tree."""
    node = tree.nodes.get(STATE)
    if node is None:
        return State(-1, [])
    found = json.loads(node.data)
    return State(found["leader"], found["isr"])


def watch_elections(log: Log, tree: MemoryTree, now: Any) -> None:
    """Note when a replica that was not in sync is made the leader."""

    def changed(before: bytes | None, after: bytes) -> None:
        if before is not None:
            old, new = json.loads(before), json.loads(after)
            if new["leader"] >= 0 and new["leader"] not in old["isr"]:
                log.say(f"unclean election: broker {new['leader']} leads {TOPIC}, in sync were {old['isr']}")
                log.loosened = now()
                log.replaced.update(old["isr"])
            log.replaced.discard(new["leader"])

    tree.observers[STATE] = changed


def judge_loose(log: Log, final: list[Read]) -> list[str]:
    """What was acknowledged after the last unclean election and deletion, and is not there."""
    return _missing(log, {record.value for record in final}, "is not there")


def judge_replicas(log: Log, tree: MemoryTree, machines: list[Machine]) -> list[str]:
    """The same for the files of every replica that is in sync: what one of them lacks is lost by a clean election."""
    return [
        line
        for number in state_of(tree).isr
        for line in _missing(log, set(_values(machines[number - 1])), f"is not on broker {number}, which is in sync")
    ]


def _missing(log: Log, there: set[str], what: str) -> list[str]:
    return [
        f"lost write: {value} of {TOPIC} was sent at {at:.3f} and acknowledged, and {what}; the last unclean election "
        f"or deletion was at {log.loosened:.3f}"
        for at, value in log.loose
        if at > log.loosened and value not in there
    ]


def _values(machine: Machine) -> Iterator[str]:
    """What the files of a replica hold; they were not compressed."""
    for path in sorted(machine.log_directory(TOPIC, 0).glob("*.log")):
        data, at = path.read_bytes(), 0
        while at < len(data):
            header = read_header(data[at:])
            for record in read_records(data[at + HEADER_SIZE : at + header.size], header.record_count):
                yield (record.value or b"").decode()
            at += header.size
