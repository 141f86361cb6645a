"""Frames and requests that are not what they say.

Each gives an error or a closed connection to the client that sent it. Nothing of it is stored, memory stays bounded,
and another client, which was connected before and works on after every case, notices nothing.
"""

from __future__ import annotations

import random
import struct
from typing import TYPE_CHECKING, Final

import pytest

from tests.compat.bad_input.victim import (
    API_VERSIONS,
    CREATE_TOPICS,
    FETCH,
    LIST_OFFSETS,
    MEMORY,
    METADATA,
    PRODUCE,
    TOPIC,
    produce,
)
from tests.support.wire import Connection, batch, plain, request

if TYPE_CHECKING:
    from tests.compat.bad_input.victim import Victim


def is_closed(connection: Connection) -> bool:
    return connection.receive_frame() is None


@pytest.mark.parametrize("size", [-(2**31), -1, 0, 1, 7, 104_857_601, 2**31 - 1])
def test_a_frame_of_impossible_size_ends_the_connection(broker: Victim, size: int) -> None:
    with Connection(broker.bootstrap) as connection:
        connection.socket.sendall(struct.pack(">i", size) + b"\0" * max(0, min(size, 100)))
        assert is_closed(connection)


@pytest.mark.parametrize(("key", "version"), [(9_999, 0), (-1, 0), (METADATA, 99), (METADATA, -1), (PRODUCE, 2)])
def test_an_unknown_api_or_version_ends_the_connection(broker: Victim, key: int, version: int) -> None:
    with Connection(broker.bootstrap) as connection:
        connection.send_frame(struct.pack(">hhih", key, version, 1, -1) + b"\0" * 20)
        assert is_closed(connection)


def test_an_unknown_version_of_api_versions_is_answered_in_version_0(broker: Victim) -> None:
    with Connection(broker.bootstrap) as connection:
        connection.send_frame(struct.pack(">hhih", API_VERSIONS, 99, 5, -1) + b"\0" * 20)
        answer = connection.receive_frame()
        assert answer is not None
        correlation_id, error, count = struct.unpack_from(">ihi", answer)
        assert (correlation_id, error) == (5, 35)
        ranges = {key: (low, high) for key, low, high in struct.iter_unpack(">hhh", answer[10 : 10 + 6 * count])}
        assert ranges[API_VERSIONS] == (0, 4)
        assert connection.ask(API_VERSIONS, 0, {}).error_code == 0


@pytest.mark.parametrize(
    "garbage",
    [
        b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
        bytes.fromhex("16030100c8010000c40303") + bytes(200),
        b"\xff" * 5_000,
        b"SSH-2.0-OpenSSH_9.6\r\n",
    ],
    ids=["http", "tls", "ones", "ssh"],
)
def test_another_protocol_ends_the_connection(broker: Victim, garbage: bytes) -> None:
    with Connection(broker.bootstrap) as connection:
        connection.socket.sendall(garbage)
        connection.finish()
        assert is_closed(connection)


def test_noise_in_honest_frames_is_survived(broker: Victim) -> None:
    for seed in range(60):
        noise = random.Random(seed).randbytes(300)
        with Connection(broker.bootstrap) as connection:
            connection.send_frame(noise)
            connection.finish()
            while connection.receive_frame() is not None:
                pass


def test_half_sent_frames_hold_nobody_up(broker: Victim) -> None:
    half = struct.pack(">i", 1_000_000) + struct.pack(">hhih", PRODUCE, 9, 1, -1) + bytes(500_000)
    waiting = [Connection(broker.bootstrap) for _ in range(40)]
    for connection in waiting[:20]:
        connection.socket.sendall(half)
    for connection in waiting[20:]:
        connection.socket.sendall(struct.pack(">i", 1_000_000))
    assert produce(broker.bystander, batch([b"served"]))["error_code"] == 0
    assert broker.memory() < 250_000_000
    for connection in waiting:
        connection.socket.close()


def test_a_client_that_never_reads_fills_its_socket_and_nothing_else(broker: Victim) -> None:
    for _ in range(20):
        assert produce(broker.bystander, batch([bytes(900_000)]))["error_code"] == 0
    before = broker.memory()
    partitions = [{"partition": 0, "fetch_offset": 0, "partition_max_bytes": 50_000_000}]
    fetch = {
        "replica_id": -1, "max_wait": 0, "min_bytes": 1, "max_bytes": 50_000_000,
        "topics": [{"topic": TOPIC, "partitions": partitions}],
    }  # fmt: skip
    frame = request(FETCH, 4, 1, fetch)
    metadata = request(METADATA, 1, 1, {"topics": []})
    deaf = [Connection(broker.bootstrap, seconds=1) for _ in range(20)]
    for connection in deaf:
        try:
            for _ in range(200):
                connection.send_frame(frame)
                connection.send_frame(metadata)
        except TimeoutError:
            pass  # the broker reads no more from a client that does not take its answers
    assert produce(broker.bystander, batch([b"served"]))["error_code"] == 0
    assert broker.memory() < before + MEMORY
    for connection in deaf:
        connection.socket.close()


UNSIGNED_HUGE: Final = b"\xff\xff\xff\xff\x07"
ENDLESS_VARINT: Final = b"\xff" * 40


def framed(key: int, version: int, body: bytes) -> bytes:
    """A request with a proper header and this body; versions with tagged fields have one more byte in the header."""
    flexible = version >= {PRODUCE: 9, LIST_OFFSETS: 6, METADATA: 9, API_VERSIONS: 3, CREATE_TOPICS: 5}[key]
    return struct.pack(">hhih", key, version, 1, -1) + (b"\0" if flexible else b"") + body


BOMBS: Final = {
    "an array of two thousand million": framed(METADATA, 1, struct.pack(">i", 2**31 - 1)),
    "an array of less than nothing": framed(METADATA, 1, struct.pack(">i", -5)),
    "an array of a million, and a few bytes": framed(METADATA, 1, struct.pack(">i", 1_000_000) + bytes(50)),
    "a compact array of two thousand million": framed(METADATA, 9, UNSIGNED_HUGE),
    "a compact array without end": framed(METADATA, 9, ENDLESS_VARINT),
    "a string longer than the frame": framed(METADATA, 1, struct.pack(">ih", 1, 32_767) + b"abc"),
    "a string of less than nothing": framed(METADATA, 1, struct.pack(">ih", 1, -7)),
    "a compact string longer than the frame": framed(METADATA, 9, b"\x02" + UNSIGNED_HUGE),
    "two thousand million tagged fields": framed(METADATA, 9, b"\x01\x00\x00\x00" + UNSIGNED_HUGE),
    "a tagged field longer than the frame": framed(METADATA, 9, b"\x01\x00\x00\x00\x01\x09" + UNSIGNED_HUGE),
    "tagged fields without end": framed(METADATA, 9, b"\x01\x00\x00\x00" + ENDLESS_VARINT),
    "tagged fields in the header": struct.pack(">hhih", METADATA, 9, 1, -1) + UNSIGNED_HUGE,
    "a long client id": struct.pack(">hhih", METADATA, 1, 1, 32_767) + b"x",
    "a negative client id": struct.pack(">hhih", METADATA, 1, 1, -2) + bytes(10),
    "names that are not UTF-8": framed(METADATA, 1, struct.pack(">ih", 1, 4) + b"\xff\xfe\xfd\xfc"),
    "records longer than the frame": framed(
        PRODUCE, 3, struct.pack(">hhiih", -1, 1, 1000, 1, 6) + b"victim" + struct.pack(">iii", 1, 0, 2**31 - 1)
    ),
    "records of less than nothing": framed(
        PRODUCE, 3, struct.pack(">hhiih", -1, 1, 1000, 1, 6) + b"victim" + struct.pack(">iii", 1, 0, -9)
    ),
    "arrays in arrays": framed(
        CREATE_TOPICS, 2, struct.pack(">ih", 1, 1) + b"a" + struct.pack(">ihi", 1, 1, 2**31 - 1)
    ),
    "null where topics must be": framed(LIST_OFFSETS, 1, struct.pack(">ii", -1, -1)),
    "null where partitions must be": framed(LIST_OFFSETS, 1, struct.pack(">iih", -1, 1, 1) + b"a" + b"\xff" * 4),
    "null where a topic's assignments must be": framed(
        CREATE_TOPICS, 5, b"\x02\x02a" + struct.pack(">ih", 1, 1) + b"\0\0\0" + struct.pack(">ib", 1_000, 1) + b"\0"
    ),
    "an array of zero-sized things": framed(API_VERSIONS, 3, b"\x01\x01" + b"\xff\xff\xff\xff\x0f" + bytes(1000)),
}


@pytest.mark.parametrize("bomb", BOMBS.values(), ids=BOMBS.keys())
def test_a_length_that_lies_costs_no_memory(broker: Victim, bomb: bytes) -> None:
    before = broker.memory()
    with Connection(broker.bootstrap) as connection:
        connection.send_frame(bomb)
        connection.finish()
        while connection.receive_frame() is not None:
            pass
    assert broker.memory() < before + 16_000_000


def test_many_small_elements_in_a_full_frame_stay_cheap(broker: Victim) -> None:
    """A frame of three megabytes can name a million topics; objects must not multiply it without bound."""
    names = b"\x00\x01a" * 1_000_000
    with Connection(broker.bootstrap, seconds=60) as connection:
        connection.send_frame(framed(METADATA, 1, struct.pack(">i", 1_000_000) + names))
        connection.receive_frame()
    assert broker.memory() < 400_000_000


def test_more_partitions_than_any_cluster_has_are_refused(broker: Victim) -> None:
    topic = {"name": "vast", "num_partitions": 2**31 - 1, "replication_factor": 1}
    with Connection(broker.bootstrap) as connection:
        answer = plain(connection.ask(CREATE_TOPICS, 7, {"topics": [topic], "timeout": 10_000}))
    assert answer["topics"][0]["error_code"] != 0
