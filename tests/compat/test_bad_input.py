"""A live broker under hostile bytes.

Each gives an error or a closed connection to the client that sent it. Nothing of it is stored, memory stays bounded,
and another client, which was connected before and works on after every case, notices nothing.
"""

from __future__ import annotations

import contextlib
import os
import random
import struct
import subprocess
import sys
import threading
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import cramjam
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.brokers import Barnabas
from tests.support.waiting import wait_until
from tests.support.wire import Connection, batch, plain, read_response, request, varint

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

PRODUCE, FETCH, LIST_OFFSETS, METADATA, API_VERSIONS, CREATE_TOPICS, DESCRIBE_CONFIGS = 0, 1, 2, 3, 18, 19, 32
MAX_FRAME: Final = 4_000_000
MEMORY: Final = 96_000_000
"""What a broker may take on top of what it had, however it is abused by one client."""
TOPIC: Final = "victim"
OPENED: Final = "opened"
"""A topic that keeps its records uncompressed: the broker has to open every compressed batch."""


class Victim(NamedTuple):
    """The broker under attack, and a client of it that minds its own business."""

    bootstrap: str
    bystander: Connection
    memory: Callable[[], int]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Victim]:
    given_bootstrap = os.environ.get("BARNABAS_TEST_BOOTSTRAP")
    if given_bootstrap:
        with Connection(given_bootstrap) as bystander:
            make_topics(bystander)
            yield Victim(given_bootstrap, bystander, lambda: 0)
        return
    process = Barnabas(tmp_path_factory.mktemp("victim"), {"socket.request.max.bytes": str(MAX_FRAME)})
    with process, Connection(process.bootstrap) as bystander:
        make_topics(bystander)
        yield Victim(process.bootstrap, bystander, process.anonymous_memory)
        assert process.stop() == 0
        assert "Traceback" not in process.output(), "bad input should be foreseen, not an accident"
        command = [sys.executable, "-m", "barnabas.cli.main", "log", "check", str(process.data)]
        checked = subprocess.run(command, capture_output=True, text=True, timeout=60)
        assert checked.returncode == 0, checked.stdout


def make_topics(connection: Connection) -> None:
    plain_topic = {"name": TOPIC, "num_partitions": 1, "replication_factor": 1}
    opened = {**plain_topic, "name": OPENED, "configs": [{"name": "compression.type", "value": "uncompressed"}]}
    connection.ask(CREATE_TOPICS, 7, {"topics": [plain_topic, opened], "timeout": 10_000})
    for topic in (TOPIC, OPENED):
        wait_until(lambda topic=topic: produce(connection, batch([b"first"]), topic=topic)["error_code"] == 0, topic)  # type: ignore[misc]


def produce(connection: Connection, records: bytes | None, acks: int = 1, topic: str = TOPIC) -> dict[str, Any]:
    """The answer for one partition."""
    topics = [{"name": topic, "partition_data": [{"index": 0, "records": records}]}]
    answer = connection.ask(PRODUCE, 9, {"acks": acks, "timeout": 10_000, "topic_data": topics})
    found: dict[str, Any] = plain(answer)["responses"][0]["partition_responses"][0]
    return found


def end_offset(connection: Connection, topic: str = TOPIC) -> int:
    topics = [{"name": topic, "partitions": [{"partition_index": 0, "timestamp": -1}]}]
    answer = plain(connection.ask(LIST_OFFSETS, 7, {"replica_id": -1, "topics": topics}))
    return int(answer["topics"][0]["partitions"][0]["offset"])


@contextlib.contextmanager
def watched(broker: Victim) -> Iterator[list[int]]:
    """What memory the broker has while the block runs, asked every few milliseconds."""
    seen = [broker.memory()]
    done = threading.Event()

    def look() -> None:
        while not done.wait(0.005):
            seen.append(broker.memory())

    watcher = threading.Thread(target=look)
    watcher.start()
    try:
        yield seen
    finally:
        done.set()
        watcher.join()


@pytest.fixture(autouse=True)
def others_go_on(broker: Victim) -> Iterator[None]:
    """Around each case: the bystander's next record is stored and read, and memory is where it may be."""
    before = broker.memory()
    yield
    assert broker.memory() < before + MEMORY
    answer = produce(broker.bystander, batch([b"still here"]), acks=-1)
    assert answer["error_code"] == 0
    assert end_offset(broker.bystander) == answer["base_offset"] + 1


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
        with Connection(broker.bootstrap, seconds=5) as connection:
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


THREE: Final = [b"one", b"two", b"three"]
REFUSED_BATCHES: Final = {
    "a damaged byte": batch(THREE)[:-1] + b"\x55",
    "a wrong CRC": batch(THREE, crc=1),
    "cut short": batch(THREE)[:-5],
    "cut within the header": batch(THREE)[:40],
    "a few bytes": b"\0" * 11,
    "a length beyond the end": batch(THREE, batch_length=10_000),
    "a length of nothing": batch(THREE, batch_length=0),
    "a negative length": batch(THREE, batch_length=-1),
    "a length shorter than a header": batch(THREE, batch_length=20),
    "the largest length": batch(THREE, batch_length=2**31 - 1),
    "too few records told": batch(THREE, record_count=2),
    "too many records told": batch(THREE, record_count=4),
    "two thousand million records told": batch(THREE, record_count=2**31 - 1, last_offset_delta=2**31 - 2),
    "no records told": batch(THREE, record_count=0),
    "a negative number of records": batch(THREE, record_count=-1),
    "more records told than are there": batch(THREE, record_count=5, last_offset_delta=4),
    "fewer records told than are there": batch(THREE, record_count=2, last_offset_delta=1),
    "a last offset that does not fit": batch(THREE, last_offset_delta=7),
    "a negative last offset": batch(THREE, last_offset_delta=-1),
    "no records at all": batch([]),
    "records that are noise": batch(THREE, records=b"\xff" * 30),
    "a record longer than its batch": batch([b"x"], records=varint(1_000_000) + bytes(20)),
    "a record of negative length": batch([b"x"], records=varint(-20) + bytes(20)),
    "magic 3": batch(THREE, magic=3),
    "magic 1": batch(THREE, magic=1),
    "magic 0": batch(THREE, magic=0),
    "a marker that only brokers write": batch(THREE, attributes=0x20),
    "a codec that does not exist": batch(THREE, attributes=0x07),
    "a second batch that is damaged": batch(THREE) + batch(THREE, crc=1),
    "a batch and noise behind it": batch(THREE) + b"\xab" * 30,
    "two batches": batch(THREE) + batch(THREE),
    "a producer without a sequence": batch(THREE, producer_id=5, producer_epoch=0, base_sequence=-1),
}


@pytest.mark.parametrize("records", REFUSED_BATCHES.values(), ids=REFUSED_BATCHES.keys())
def test_a_batch_that_is_wrong_is_refused_and_not_stored(broker: Victim, records: bytes) -> None:
    end = end_offset(broker.bystander)
    with Connection(broker.bootstrap) as connection:
        assert produce(connection, records)["error_code"] != 0
    assert end_offset(broker.bystander) == end


@pytest.mark.parametrize("codec", [1, 2, 3, 4])
def test_noise_that_calls_itself_compressed_is_refused_where_it_is_opened(broker: Victim, codec: int) -> None:
    """Elsewhere compressed records stay closed, and what is in them is between the client and its readers."""
    end = end_offset(broker.bystander, OPENED)
    with Connection(broker.bootstrap) as connection:
        noise = batch(THREE, attributes=codec, records=b"\x13" * 50)
        assert produce(connection, noise, topic=OPENED)["error_code"] != 0
    assert end_offset(broker.bystander, OPENED) == end


@pytest.mark.parametrize(("codec", "compress"), [(1, cramjam.gzip.compress), (4, cramjam.zstd.compress)])
def test_a_small_batch_that_unpacks_to_a_huge_one_is_refused(
    broker: Victim, codec: int, compress: Callable[[bytes], Any]
) -> None:
    """200 MB of zeros take a fraction of a megabyte on the wire."""
    size = 200_000_000
    head = b"\0\0\0" + varint(-1) + varint(size)
    packed = bytes(compress(varint(len(head) + size + 1) + head + bytes(size + 1)))
    assert len(packed) < 500_000
    end = end_offset(broker.bystander, OPENED)
    before = broker.memory()
    with Connection(broker.bootstrap, seconds=60) as connection, watched(broker) as peak:
        answer = produce(connection, batch([b"x"], attributes=codec, records=packed), topic=OPENED)
        assert answer["error_code"] != 0
    assert max(peak) < before + MEMORY
    assert end_offset(broker.bystander, OPENED) == end


@pytest.mark.parametrize("records", [None, b""], ids=["null", "empty"])
def test_records_without_bytes_are_refused(broker: Victim, records: bytes | None) -> None:
    """Apache Kafka leaves the client of the first kind without an answer."""
    end = end_offset(broker.bystander)
    partition = {"index": 0, "records": records}
    body = {"acks": 1, "timeout": 1_000, "topic_data": [{"name": TOPIC, "partition_data": [partition]}]}
    with Connection(broker.bootstrap) as connection:
        connection.send_frame(request(PRODUCE, 9, 1, body))
        answer = connection.receive_frame()
        if answer is not None:
            [topic] = plain(read_response(PRODUCE, 9, answer, 1))["responses"]
            assert topic["partition_responses"][0]["error_code"] != 0
    assert end_offset(broker.bystander) == end


def test_more_partitions_than_any_cluster_has_are_refused(broker: Victim) -> None:
    topic = {"name": "vast", "num_partitions": 2**31 - 1, "replication_factor": 1}
    with Connection(broker.bootstrap) as connection:
        answer = plain(connection.ask(CREATE_TOPICS, 7, {"topics": [topic], "timeout": 10_000}))
    assert answer["topics"][0]["error_code"] != 0


SEEDS: Final = [
    request(PRODUCE, version, 1, {
        "acks": 1, "timeout": 1_000,
        "topic_data": [{"name": TOPIC, "partition_data": [{"index": 0, "records": batch(THREE)}]}],
    })
    for version in (3, 9, 12)
] + [
    request(FETCH, version, 1, {
        "replica_id": -1, "max_wait": 0, "min_bytes": 0, "max_bytes": 100_000,
        "topics": [{"topic": TOPIC, "partitions": [{"partition": 0, "fetch_offset": 0, "partition_max_bytes": 9_000}]}],
    })
    for version in (4, 7, 12)
] + [
    request(LIST_OFFSETS, version, 1, {
        "replica_id": -1, "topics": [{"name": TOPIC, "partitions": [{"partition_index": 0, "timestamp": -1}]}],
    })
    for version in (1, 7)
] + [
    request(METADATA, version, 1, {"topics": [{"name": TOPIC}], "allow_auto_topic_creation": False})
    for version in (1, 12)
] + [
    request(API_VERSIONS, 3, 1, {"client_software_name": "fuzz", "client_software_version": "1"}),
    request(DESCRIBE_CONFIGS, 4, 1, {"resources": [{"resource_type": 2, "resource_name": TOPIC}]}),
    request(CREATE_TOPICS, 7, 1, {
        "topics": [{"name": "scratch", "num_partitions": 1, "replication_factor": 1,
                    "configs": [{"name": "retention.ms", "value": "1000"}]}],
        "timeout": 1_000, "validate_only": True,
    }),
]  # fmt: skip

MUTATIONS: Final = st.lists(
    st.tuples(
        st.floats(0, 1),
        st.sampled_from(["replace", "insert", "cut", "repeat"]),
        st.sampled_from([b"\xff", b"\x7f\xff\xff\xff", b"\x80\0\0\0", b"\0", b"\xff\xff\xff\xff\x0f"])
        | st.binary(max_size=9),
    ),
    min_size=1,
    max_size=6,
)


def mutated(seed: bytes, mutations: list[tuple[float, str, bytes]]) -> bytes:
    for where, what, new in mutations:
        at = int(where * len(seed))
        match what:
            case "replace":
                seed = seed[:at] + new + seed[at + len(new) :]
            case "insert":
                seed = seed[:at] + new + seed[at:]
            case "cut":
                seed = seed[:at] + seed[at + len(new) :]
            case "repeat":
                seed = seed[:at] + seed[at : at + 50] + seed[at:]
    return seed


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(seed=st.sampled_from(SEEDS), mutations=MUTATIONS)
def test_requests_that_were_tampered_with(
    broker: Victim, seed: bytes, mutations: list[tuple[float, str, bytes]]
) -> None:
    """Whatever comes of it, it comes soon: an answer, or a closed connection. (A fetch may have been made to wait.)"""
    with Connection(broker.bootstrap, seconds=2) as connection:
        connection.send_frame(mutated(seed, mutations))
        connection.finish()
        with contextlib.suppress(TimeoutError):
            while connection.receive_frame() is not None:
                pass


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(mutations=MUTATIONS, codec=st.integers(0, 4))
def test_batches_that_were_tampered_with(broker: Victim, mutations: list[tuple[float, str, bytes]], codec: int) -> None:
    """Each is answered. What gets past the checks is looked at by `barnabas log check` when the broker has stopped."""
    produce(broker.bystander, mutated(batch(THREE, attributes=codec), mutations))
