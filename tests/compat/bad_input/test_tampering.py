"""Valid requests and batches, tampered with at random: bounded fuzzing of a live broker.

What was found this way is kept by name in the files beside this one.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any, Final

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.compat.bad_input.victim import THREE, TOPIC, produce
from tests.support.wire import Connection, batch, request

if TYPE_CHECKING:
    from tests.compat.bad_input.victim import Victim

SCRATCH: Final = "scratch"
"""Named where a request might do harm if it were understood; no such topic is there."""
NAMED: Final = {"name": TOPIC, "topic": TOPIC}
PARTITION: Final = {
    "index": 0, "partition": 0, "partition_index": 0, "records": batch(THREE),
    "fetch_offset": 0, "partition_max_bytes": 9_000, "timestamp": -1, "leader_epoch": 0, "current_leader_epoch": -1,
}  # fmt: skip
RESOURCE: Final = {
    "resource_type": 2, "resource_name": SCRATCH, "configuration_keys": ["retention.ms"],
    "configs": [{"name": "retention.ms", "value": "1000", "config_operation": 0}],
}  # fmt: skip
NEW: Final = {
    "name": SCRATCH, "num_partitions": 1, "replication_factor": 1, "count": 2,
    "assignments": [{"partition_index": 0, "broker_ids": [1]}], "configs": [{"name": "retention.ms", "value": "1"}],
}  # fmt: skip
TOPICS: Final = [{**NAMED, "partitions": [PARTITION], "partition_data": [PARTITION], "partition_indexes": [0]}]

REQUESTS: Final[dict[int, tuple[range, dict[str, Any]]]] = {
    0: (range(3, 13), {"acks": 1, "timeout": 1_000, "topic_data": TOPICS}),
    1: (range(4, 13), {"replica_id": -1, "max_bytes": 100_000, "topics": TOPICS}),
    2: (range(1, 12), {"replica_id": -1, "topics": TOPICS, "timeout": 1_000}),
    3: (range(14), {"topics": [{"name": TOPIC}], "allow_auto_topic_creation": False}),
    10: (range(7), {"key": "group", "coordinator_keys": ["group"]}),
    18: (range(5), {"client_software_name": "fuzz", "client_software_version": "1"}),
    19: (range(2, 8), {"topics": [NEW], "timeout": 1_000, "validate_only": True}),
    20: (range(1, 7), {"topics": [{"name": SCRATCH}], "topic_names": [SCRATCH], "timeout": 1_000}),
    21: (range(3), {"topics": [{"name": SCRATCH, "partitions": [PARTITION]}], "timeout": 1_000}),
    22: (range(6), {"transaction_timeout": 60_000, "producer_id": -1, "producer_epoch": -1}),
    23: (range(2, 5), {"replica_id": -1, "topics": TOPICS}),
    32: (range(1, 5), {"resources": [RESOURCE], "include_synonyms": True}),
    33: (range(3), {"resources": [RESOURCE], "validate_only": True}),
    35: (range(1, 6), {"topics": [{**NAMED, "partitions": [0]}]}),
    37: (range(4), {"topics": [NEW], "timeout": 1_000, "validate_only": True}),
    44: (range(2), {"resources": [RESOURCE], "validate_only": True}),
    60: (range(3), {"endpoint_type": 1}),
    61: (range(1), {"topics": TOPICS}),
    74: (range(2), {"resource_types": [2]}),
    75: (range(1), {"topics": [{"name": TOPIC}], "response_partition_limit": 100, "cursor": {"topic_name": TOPIC}}),
}
"""By API: versions, and values for all of them."""
SEEDS: Final = [
    request(key, version, 1, values) for key, (versions, values) in REQUESTS.items() for version in versions
]

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


@settings(
    max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
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


@settings(
    max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
@given(mutations=MUTATIONS, codec=st.integers(0, 4))
def test_batches_that_were_tampered_with(broker: Victim, mutations: list[tuple[float, str, bytes]], codec: int) -> None:
    """Each is answered. What gets past the checks is looked at by `barnabas log check` when the broker has stopped."""
    produce(broker.bystander, mutated(batch(THREE, attributes=codec), mutations))
