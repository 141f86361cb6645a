"""Groups and transactional ids that nobody uses any more: what each takes, and how long they take to be loaded."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from bench.clients import groups, hot, wire
from bench.clients.sockets import Connections
from kio.schema.init_producer_id.v5.request import InitProducerIdRequest
from kio.schema.list_groups.v4.request import ListGroupsRequest
from kio.schema.list_transactions.v1.request import ListTransactionsRequest
from kio.schema.types import ProducerId, TransactionalId
from kio.static.primitive import i16
from scripts.growth import topics
from scripts.growth.brokers import DEADLINE, Brokers
from scripts.growth.groups import wait_for_coordinators
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from scripts.growth.tables import Column

_TOPIC: Final = "committed"
_CONNECTIONS: Final = 50
_COORDINATORS: Final = 50


@dataclass(frozen=True)
class Kind:
    """Something that is remembered by its id."""

    prepare: Callable[[Brokers], None]
    frames: Callable[[int], list[bytes]]
    """Requests that each make one more."""
    error: slice
    """Where an answer to such a request has its error."""
    listing: bytes
    """A request for all of them."""
    counted_at: int
    """Where its answer says how many there are."""


def _prepare_groups(brokers: Brokers) -> None:
    with brokers.connection() as admin:
        topics.create(admin, [_TOPIC], 1, 1, 1)
    wait_for_coordinators(brokers)


def _prepare_transactions(brokers: Brokers) -> None:
    hot.wait_for_transactions(brokers.port())
    with brokers.connect() as connection:
        for number in range(8 * _COORDINATORS):
            hot.init_producer(connection, TransactionalId(f"waits-{number}"))


def _init(number: int) -> bytes:
    return wire.frame(
        InitProducerIdRequest(
            transactional_id=TransactionalId(f"transactional-{number}"),
            transaction_timeout=hot.TIMEOUT,
            producer_id=ProducerId(-1),
            producer_epoch=i16(-1),
        )
    )


KINDS: Final = {
    "groups with an offset": Kind(
        _prepare_groups,
        lambda count: groups.commit_requests(_TOPIC, count),
        groups.commit_error_at(_TOPIC),
        wire.frame(ListGroupsRequest(states_filter=())),
        groups.ERROR.stop,
    ),
    "transactional ids": Kind(
        _prepare_transactions,
        lambda count: [_init(number) for number in range(count)],
        groups.ERROR,
        wire.frame(ListTransactionsRequest(state_filters=(), producer_id_filters=())),
        groups.ERROR.stop + 1,
    ),
}


def measure(folder: Path, name: str, count: int, memory: int, column: Column) -> None:
    """Make them, stop the broker, and start it again."""
    kind = KINDS[name]
    with Brokers(folder, 1, memory) as brokers:
        kind.prepare(brokers)
        frames = kind.frames(count)
        before, used = brokers.memory(), brokers.processor()
        with Connections(brokers.port(), _CONNECTIONS) as connections:
            load = connections.exchange(frames, kind.error, count)
        column.note("made, s", load.seconds)
        column.note("processor µs of each", (brokers.processor() - used) / count * 1e6)
        column.note("memory of each, bytes", (brokers.memory() - before) / count)
        column.note("clean stop, s", brokers.stop())
        began = time.perf_counter()
        column.note("start until the broker is ready, s", brokers.start([1]))
        wait_until(lambda: _listed(brokers, kind) >= count, f"{count:,} {name}", DEADLINE, 0.1)
        column.note("start until all are loaded, s", time.perf_counter() - began)
        column.note("processor s of it", brokers.processor())
        column.note("memory of each after it, bytes", (brokers.memory() - before) / count)


def _listed(brokers: Brokers, kind: Kind) -> int:
    """How many there are; none while they are loaded."""
    with brokers.connect() as connection:
        connection.sendall(kind.listing)
        answer = wire.receive(connection)
    if any(answer[groups.ERROR]):
        return 0
    value = shift = 0
    for byte in answer[kind.counted_at :]:
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            break
        shift += 7
    return value - 1
