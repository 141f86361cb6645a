"""Three brokers with ever more partitions, each with three replicas: what everything costs, and what one change costs.

Each size has a cluster of its own over a metadata file. A change of one partition is repeated, each time waiting until
all brokers have it; what the brokers use at rest in that time is taken off. From their restart on, followers without
records wait for long instead of half a second, so that this is little. Processor time is that of all brokers.
"""

from __future__ import annotations

import time
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING, Final

from bench.clients import hot, wire
from scripts.growth import topics, view
from scripts.growth.brokers import DEADLINE, Brokers
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable
    from pathlib import Path
    from typing import Any

    from scripts.growth.tables import Column
    from scripts.growth.view import ClusterView

    Settled = Callable[[ClusterView], bool]

SIZE: Final = 3
PARTITIONS_OF_A_TOPIC: Final = 10
_TOPICS_AT_ONCE: Final = 100
_SAMPLE: Final = 20
"""Topics that are looked at until they are as wanted, before all are."""
_CHANGES: Final = 20
_RECORDS: Final = 200
_REQUESTS: Final = 200
_REST: Final = 10.0
_LONG_WAIT: Final = 20_000
"""Milliseconds that a follower's fetch may wait for records."""
_METADATA, _DELETE_TOPICS, _ELECT_LEADERS, _REASSIGN = 3, 20, 43, 45
_UNKNOWN_TOPIC: Final = 3
_BYTES_OF_A_REPLICA: Final = 20_000
"""A careful estimate, to tell beforehand whether the machine holds a size."""


def bytes_needed(partitions: int) -> int:
    """What the brokers may need for so many partitions."""
    return SIZE * (partitions * _BYTES_OF_A_REPLICA + 200_000_000)


class ManyPartitions:
    """One size, measured step by step."""

    def __init__(self, brokers: Brokers, partitions: int, column: Column) -> None:
        self._brokers = brokers
        self._partitions = partitions
        self._column = column
        self._names = [f"grow-{number:06}" for number in range(partitions // PARTITIONS_OF_A_TOPIC)]
        self._sample = self._names[:: max(1, len(self._names) // _SAMPLE)]
        self._resting = 0.0
        """Processor seconds of a second at rest."""

    def measure(self) -> None:
        """Everything, from creation to the death of the controller."""
        self._create()
        self._stop_and_start()
        self._ask_for_metadata()
        self._change_one()
        self._timed("all leaders moved back", self._balance)
        self._kill_a_broker()
        self._balance()
        self._kill_the_controller()

    def _create(self) -> None:
        before = self._brokers.memory()
        with self._brokers.connection() as connection:

            def create() -> None:
                topics.create(connection, self._names, PARTITIONS_OF_A_TOPIC, SIZE, _TOPICS_AT_ONCE)
                self._wait_for(lambda told: told.in_sync == told.partitions)

            self._timed("creation", create)
        made = self._brokers.memory() - before
        self._column.note("memory of a replica, KB", made / (self._partitions * SIZE) / 1e3)
        self._column.note("at rest, processor ms a second", self._brokers.at_rest(_REST) * 1e3)

    def _ask_for_metadata(self) -> None:
        with self._brokers.connect() as connection:
            told = view.ask(connection, view.request(None))
            self._column.note("Metadata of all, MB", told.size / 1e6)
            used = self._brokers.processor()
            wait = self._answer(connection, view.request(None), 5)
            self._column.note("Metadata of all, ms", wait * 1e3)
            self._column.note("Metadata of all, processor ms", (self._brokers.processor() - used) / 5 * 1e3)
            used = self._brokers.processor()
            took = self._answer(connection, view.request([self._names[-1]]), _REQUESTS)
            used = self._brokers.processor() - used - self._resting * took * _REQUESTS
            self._column.note("Metadata of one topic, processor µs", used / _REQUESTS * 1e6)

    def _answer(self, connection: socket.socket, frame: bytes, count: int) -> float:
        began = time.perf_counter()
        for _ in range(count):
            connection.sendall(frame)
            wire.receive(connection)
        return (time.perf_counter() - began) / count

    def _change_one(self) -> None:
        names = [f"change-{number:02}" for number in range(_CHANGES)]
        with ExitStack() as stack:
            told = {each: stack.enter_context(self._brokers.connection(each)) for each in self._brokers.living}
            asked = told[1]

            def everywhere(name: str, holds: Callable[[Any], bool]) -> None:
                for connection in told.values():
                    wait_until(lambda line=connection: holds(_topic(line, name)), f"{name} everywhere", DEADLINE)  # type: ignore[misc]

            def make(name: str) -> None:
                topics.create(asked, [name], 1, SIZE, 1)
                everywhere(name, lambda found: found.partitions and len(found.partitions[0].isr_nodes) == SIZE)

            def move(name: str) -> None:
                place = {"topic": name, "partitions": [0]}
                wanted = {"election_type": 0, "topic_partitions": [place], "timeout": topics.MINUTES}
                answer = asked.ask(_ELECT_LEADERS, 2, wanted)
                _check(
                    answer.error_code,
                    *(each.error_code for each in answer.replica_election_results[0].partition_result),
                )
                everywhere(name, lambda found: found.partitions[0].leader_id == found.partitions[0].replica_nodes[0])

            def delete(name: str) -> None:
                answer = asked.ask(_DELETE_TOPICS, 6, {"topics": [{"name": name}], "timeout": topics.MINUTES})
                _check(answer.responses[0].error_code)
                everywhere(name, lambda found: found.error_code == _UNKNOWN_TOPIC)

            self._each("one topic made", make, names)
            self._produce(names[0], _topic(asked, names[0]).partitions[0].leader_id)
            _reorder(asked, names)
            for name in names:
                everywhere(name, lambda found: found.partitions[0].leader_id != found.partitions[0].replica_nodes[0])
            self._each("one leader moved", move, names)
            self._each("one topic deleted", delete, names)

    def _each(self, what: str, change: Callable[[str], None], names: list[str]) -> None:
        used, began = self._brokers.processor(), time.perf_counter()
        for name in names:
            change(name)
        seconds = time.perf_counter() - began
        used = self._brokers.processor() - used - self._resting * seconds
        self._column.note(f"{what}, ms", seconds / len(names) * 1e3)
        self._column.note(f"{what}, processor ms", used / len(names) * 1e3)

    def _produce(self, topic: str, leader: int) -> None:
        frame = wire.produce_batches(topic, (0,), wire.batch(hot.RECORD), hot.ALL)
        with self._brokers.connect(leader) as connection:
            self._answer(connection, frame, 10)
            used = self._brokers.processor()
            took = self._answer(connection, frame, _RECORDS)
        used = self._brokers.processor() - used - self._resting * took * _RECORDS
        self._column.note("one record with acks=all, processor µs", used / _RECORDS * 1e6)

    def _stop_and_start(self) -> None:
        everybody = self._brokers.living
        self._column.note("clean stop, s", self._brokers.stop())
        self._brokers.set("replica.fetch.wait.max.ms", str(_LONG_WAIT))
        self._column.note("start until all are ready, s", self._brokers.start(everybody))
        self._timed("... and until all have leaders", self._wait_for_leaders)
        self._column.note("start, processor s of all", self._brokers.processor())
        self._wait_for(lambda told: told.in_sync == told.partitions)
        self._resting = self._brokers.at_rest(_REST)
        self._column.note(f"at rest with waits of {_LONG_WAIT / 1e3:g} s, processor ms a second", self._resting * 1e3)

    def _balance(self) -> None:
        """Let the preferred replicas lead: brokers that stopped and were killed gave their partitions away."""
        self._wait_for(lambda told: told.in_sync == told.partitions)
        least = self._partitions // SIZE * 9 // 10
        with self._brokers.connection() as connection:
            wanted = {"election_type": 0, "topic_partitions": None, "timeout": topics.MINUTES}
            _check(connection.ask(_ELECT_LEADERS, 2, wanted).error_code)
        self._wait_for(lambda told: told.partitions < self._partitions or min(told.leaders.values()) >= least)

    def _kill_a_broker(self) -> None:
        victim = next(each for each in self._brokers.living if each != self._controller())
        self._brokers.kill(victim)
        self._timed("death of a broker until all have leaders", self._wait_for_leaders)

        def return_again() -> None:
            self._brokers.start([victim])
            self._wait_for(lambda told: told.in_sync == told.partitions)

        self._timed("its return until all are in sync", return_again)

    def _kill_the_controller(self) -> None:
        victim = self._controller()
        self._brokers.kill(victim)
        self._timed("death of the controller until all have leaders", self._wait_for_leaders)

    def _controller(self) -> int:
        with self._brokers.connect(self._brokers.living[0]) as connection:
            return view.ask(connection, view.request(self._sample[:1])).controller

    def _timed(self, what: str, work: Callable[[], None]) -> None:
        used, began = self._brokers.processor(), time.perf_counter()
        work()
        seconds = time.perf_counter() - began
        self._column.note(f"{what}, s", seconds)
        self._column.note(f"{what}, processor s", self._brokers.processor() - used)

    def _wait_for_leaders(self) -> None:
        living = self._brokers.living
        self._wait_for(lambda told: told.controller in living and told.led_by(living) == told.partitions)

    def _wait_for(self, settled: Settled) -> None:
        """Wait until all brokers say so: first of some topics, which costs them little, then of all."""
        for broker in self._brokers.living:
            for frame in (view.request(self._sample), view.request(None)):
                wait_until(lambda of=broker, asked=frame: self._says(of, asked, settled), "the cluster", DEADLINE, 0.05)  # type: ignore[misc]
        with self._brokers.connect(self._brokers.living[0]) as connection:
            found = view.ask(connection, view.request(None)).partitions
        if found < self._partitions:
            raise RuntimeError(f"there are {found:,} partitions instead of {self._partitions:,}")

    def _says(self, broker: int, frame: bytes, settled: Settled) -> bool:
        with suppress(ConnectionError), self._brokers.connect(broker) as connection:
            told = view.ask(connection, frame)
            return told.partitions > 0 and settled(told)
        return False


def _topic(connection: Any, name: str) -> Any:
    [found] = connection.ask(_METADATA, 12, {"topics": [{"name": name}], "allow_auto_topic_creation": False}).topics
    return found


def _reorder(connection: Any, names: list[str]) -> None:
    """Let another replica be the preferred leader of each topic's partition."""
    wanted = []
    for name in names:
        first, *others = _topic(connection, name).partitions[0].replica_nodes
        wanted.append({"name": name, "partitions": [{"partition_index": 0, "replicas": [*others, first]}]})
    answer = connection.ask(_REASSIGN, 0, {"topics": wanted, "timeout": topics.MINUTES})
    _check(answer.error_code, *(each.error_code for topic in answer.responses for each in topic.partitions))


def _check(*errors: int) -> None:
    if any(errors):
        raise RuntimeError(f"the broker answered {[error for error in errors if error]}")


def measure(folder: Path, partitions: int, memory: int, column: Column) -> None:
    """One size in a folder of its own."""
    with Brokers(folder, SIZE, memory // SIZE) as brokers:
        ManyPartitions(brokers, partitions, column).measure()
