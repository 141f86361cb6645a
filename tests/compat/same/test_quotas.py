"""Client quotas: how they are set and told, which errors there are, and how long a client has to wait."""

from __future__ import annotations

import math
from typing import Any, Final

import pytest

from tests.compat.same.scene import CREATE_PARTITIONS, CREATE_TOPICS, DELETE_TOPICS, FETCH, PRODUCE, Scene, neutral
from tests.support.quotas import alter, alteration, describe
from tests.support.waiting import wait_until
from tests.support.wire import Connection, batch, plain

PRODUCED, FETCHED, TIME = "producer_byte_rate", "consumer_byte_rate", "request_percentage"
CONNECTIONS, MUTATIONS = "connection_creation_rate", "controller_mutation_rate"
EXACT, DEFAULT, ANY = 0, 1, 2
TAG: Final = "TAG"
"""Stands for what makes names of one test run its own."""


def comparable(scene: Scene, answer: Any) -> Any:
    """An answer without the order of its parts, and without what belongs to one broker."""
    if isinstance(answer, dict):
        return {key: comparable(scene, value) for key, value in answer.items() if key != "throttle_time"}
    if isinstance(answer, list):
        return sorted((comparable(scene, one) for one in answer), key=repr)
    return answer.replace(scene.tag, TAG) if isinstance(answer, str) else answer


def tagged(scene: Scene, parts: Any) -> Any:
    return [(kind, name.replace(TAG, scene.tag) if isinstance(name, str) else name) for kind, name in parts]


@pytest.mark.parametrize("version", [0, 1])
@pytest.mark.parametrize(
    "entries",
    [
        pytest.param([([("user", "u-TAG")], [(PRODUCED, 1024.0), (TIME, 12.5)])], id="a user"),
        pytest.param([([("client-id", "c-TAG"), ("user", None)], [(FETCHED, 1.0)])], id="a client id of all users"),
        pytest.param([([("ip", "10.1.2.3")], [(CONNECTIONS, 5.0)])], id="an address"),
        pytest.param([([("user", "never-TAG")], [(PRODUCED, None)])], id="a quota that is not there"),
        pytest.param([([("user", "never-TAG")], [])], id="no changes"),
        pytest.param([([("user", "never-TAG")], [("nonsense", None)])], id="removing what cannot be"),
        pytest.param([([("user", "never-TAG")], [("nonsense", 1.0)])], id="an unknown key"),
        pytest.param([([("user", "never-TAG")], [(PRODUCED, 1.0), ("nonsense", 1.0)])], id="a good and a bad key"),
        pytest.param([([("user", "never-TAG")], [("SCRAM-SHA-512", 1.0)])], id="a password"),
        pytest.param([([("user", "never-TAG")], [(CONNECTIONS, 1.0)])], id="a key of addresses"),
        pytest.param([([("ip", None)], [(PRODUCED, 1.0)])], id="a key of users"),
        pytest.param([([("user", "never-TAG")], [(PRODUCED, 0.0)])], id="nothing"),
        pytest.param([([("user", "never-TAG")], [(TIME, -1.0)])], id="less than nothing"),
        pytest.param([([("user", "never-TAG")], [(PRODUCED, 1.5)])], id="a fraction"),
        pytest.param([([("user", "never-TAG")], [(PRODUCED, 1e30)])], id="too much"),
        pytest.param([([("user", "never-TAG")], [(PRODUCED, math.inf)])], id="infinity"),
        pytest.param([([("ip", "10.1.2.3")], [(CONNECTIONS, 3e9)])], id="too many connections"),
        pytest.param([([("ip", "no-such-host.invalid")], [(CONNECTIONS, 1.0)])], id="an unknown host"),
        pytest.param([([("ip", "10.1.2.3"), ("user", "u")], [(CONNECTIONS, 1.0)])], id="an address and a user"),
        pytest.param([([], [(PRODUCED, 1.0)])], id="nobody"),
        pytest.param([([("group", "g")], [(PRODUCED, 1.0)])], id="an unknown type"),
        pytest.param([([("user", "")], [(PRODUCED, 1.0)])], id="an empty name"),
        pytest.param([([("user", "a-TAG"), ("user", "b-TAG")], [(PRODUCED, 1.0)])], id="two users at once"),
        pytest.param([([("user", "twice-TAG")], [(PRODUCED, 1.0), (PRODUCED, 2.0)])], id="a key twice"),
        pytest.param(
            [([("user", "first-TAG")], [(PRODUCED, 1.0)]), ([("user", "first-TAG")], [(FETCHED, 2.0)])],
            id="an entity twice",
        ),
        pytest.param(
            [([("user", "some-TAG")], [(PRODUCED, 1.0)]), ([("user", "others-TAG")], [("nonsense", 2.0)])],
            id="one that can be changed and one that cannot",
        ),
        pytest.param([([("user", "CN=a b,O=ü/%<default>-TAG")], [(PRODUCED, 1.0)])], id="an odd name"),
    ],
)
def test_alterations_are_answered_alike(
    scenes: tuple[Scene, Scene], entries: list[tuple[Any, Any]], version: int
) -> None:
    answers = []
    for scene in scenes:
        named = [alteration(tagged(scene, entity), changes) for entity, changes in entries]
        answers.append(comparable(scene, alter(scene.connection, *named, version=version)))
    assert answers[0] == answers[1]


def quotas_of_the_test(scene: Scene, *components: tuple[str, int, str | None], strict: bool) -> Any:
    """What a filter finds among what this test run has set, or its error."""
    wanted = [(kind, how, name.replace(TAG, scene.tag) if name else name) for kind, how, name in components]
    answer = describe(scene.connection, *wanted, strict=strict)
    if answer["entries"] is not None:
        answer["entries"] = [one for one in answer["entries"] if scene.tag in str(one["entity"])]
    return comparable(scene, answer)


def test_quotas_are_described_alike_by_every_filter(scenes: tuple[Scene, Scene]) -> None:
    for scene in scenes:
        entities: list[list[tuple[str, str | None]]] = [
            [("user", f"alice-{scene.tag}")],
            [("user", f"alice-{scene.tag}"), ("client-id", "app")],
            [("user", f"alice-{scene.tag}"), ("client-id", None)],
            [("user", None), ("client-id", f"app-{scene.tag}")],
            [("client-id", f"app-{scene.tag}")],
        ]
        named = [alteration(entity, [(PRODUCED, 7.0 + place), (TIME, 0.5)]) for place, entity in enumerate(entities)]
        assert not any(one["error_code"] for one in alter(scene.connection, *named))
        undone = alteration([("user", f"nobody-{scene.tag}")], [(PRODUCED, 1.0)])
        assert not any(one["error_code"] for one in alter(scene.connection, undone, validate_only=True))
        last = ("client-id", EXACT, f"app-{TAG}")
        wait_until(lambda: len(quotas_of_the_test(scene, last, strict=False)["entries"]) == 2, "quotas")  # noqa: B023
    user, client = f"alice-{TAG}", f"app-{TAG}"
    filters: list[list[tuple[str, int, str | None]]] = [
        [],
        [("user", EXACT, user)],
        [("user", EXACT, f"nobody-{TAG}")],
        [("user", EXACT, "")],
        [("user", DEFAULT, None)],
        [("user", ANY, None)],
        [("client-id", EXACT, client)],
        [("client-id", DEFAULT, None)],
        [("client-id", ANY, None)],
        [("user", EXACT, user), ("client-id", ANY, None)],
        [("user", EXACT, user), ("client-id", DEFAULT, None)],
        [("user", DEFAULT, None), ("client-id", EXACT, client)],
        [("ip", ANY, None)],
        [("ip", ANY, None), ("user", ANY, None)],
        [("user", ANY, None), ("user", ANY, None)],
        [("", ANY, None)],
        [("group", ANY, None)],
        [("user", EXACT, None)],
        [("user", DEFAULT, user)],
        [("user", ANY, user)],
        [("user", 3, None)],
    ]
    for components in filters:
        for strict in (False, True):
            ours, theirs = (quotas_of_the_test(scene, *components, strict=strict) for scene in scenes)
            assert ours == theirs, (components, strict)


def assert_alike(ours: float, theirs: float) -> None:
    """Times to wait that differ by no more than what brokers and machines take for their own."""
    assert abs(ours - theirs) <= 0.1 * theirs + 1500, (ours, theirs)


def test_a_load_that_is_too_large_has_to_wait_as_long(scenes: tuple[Scene, Scene]) -> None:
    """Produced and fetched: half a megabyte at ten kilobytes a second, of which a window has a hundred at most."""
    times = []
    for scene in scenes:
        topic = scene.topic("greedy")
        client_id = f"greedy-{scene.tag}"
        quota = alteration([("client-id", client_id)], [(PRODUCED, 10_000.0), (FETCHED, 10_000.0)])
        assert not alter(scene.connection, quota)[0]["error_code"]
        entity = ("client-id", EXACT, f"greedy-{TAG}")
        wait_until(lambda: quotas_of_the_test(scene, entity, strict=True)["entries"], "the quota")  # noqa: B023
        data = [{**topic, "partition_data": [{"index": 0, "records": batch([b"x" * 500_000])}]}]
        with Connection(scene.bootstrap, client_id=client_id) as producer:
            produced = plain(producer.ask(PRODUCE, 9, {"acks": -1, "timeout": 10_000, "topic_data": data}))
        assert produced["responses"][0]["partition_responses"][0]["error_code"] == 0
        with Connection(scene.bootstrap, client_id=client_id) as producer:
            again = plain(producer.ask(PRODUCE, 9, {"acks": -1, "timeout": 10_000, "topic_data": []}))
        wanted = {"partition": 0, "current_leader_epoch": -1, "log_start_offset": -1, "partition_max_bytes": 1 << 20}
        body: dict[str, Any] = {
            "replica_id": -1,
            "max_wait": 500,
            "min_bytes": 1,
            "max_bytes": 1 << 20,
            "session_epoch": 0,
        }
        with Connection(scene.bootstrap, client_id=client_id) as consumer:
            body |= {"topics": [{**topic, "partitions": [wanted]}], "forgotten_topics_data": []}
            fetched = plain(consumer.ask(FETCH, 11, body))
        times.append([answer.pop("throttle_time") for answer in (produced, again, fetched)])
        assert neutral(fetched, scene.tag) == {"error_code": 0, "session_id": 0, "responses": []}
    for ours, theirs in zip(*times, strict=True):
        assert theirs > 30_000
        assert_alike(ours, theirs)


def test_changes_of_topics_are_refused_alike(scenes: tuple[Scene, Scene]) -> None:
    """KIP-599: new versions are told that it is too much, and old ones are served and have to wait."""
    stories = [_mutate(scene) for scene in scenes]
    for (ours, our_wait), (theirs, their_wait) in zip(*stories, strict=True):
        assert ours == theirs
        assert_alike(our_wait, their_wait)


def _mutate(scene: Scene) -> list[tuple[Any, int]]:
    client_id = f"maker-{scene.tag}"
    quota = alteration([("client-id", client_id)], [(MUTATIONS, 0.5)])
    assert not alter(scene.connection, quota)[0]["error_code"]
    entity = ("client-id", EXACT, f"maker-{TAG}")
    wait_until(lambda: quotas_of_the_test(scene, entity, strict=True)["entries"], "the quota")
    told: list[tuple[Any, int]] = []

    def ask(key: int, version: int, body: dict[str, Any]) -> None:
        with Connection(scene.bootstrap, client_id=client_id) as connection:
            answer = plain(connection.ask(key, version, {"timeout": 10_000, **body}))
        wait = answer["throttle_time"]
        [results] = (value for value in answer.values() if isinstance(value, list))
        told.append(
            (comparable(scene, [{key: one.get(key) for key in ("name", "error_code")} for one in results]), wait)
        )

    def topics(*counts: tuple[str, int]) -> dict[str, Any]:
        names = [(f"{name}-{scene.tag}", count) for name, count in counts]
        return {"topics": [{"name": name, "num_partitions": n, "replication_factor": 1} for name, n in names]}

    ask(CREATE_TOPICS, 7, {**topics(("checked", 2)), "validate_only": True})
    ask(CREATE_TOPICS, 7, topics(("quota-a", 10)))
    ask(CREATE_TOPICS, 7, topics(("quota-b", 1), ("quota-a", 1), ("no/name", 1)))
    ask(CREATE_TOPICS, 5, topics(("quota-c", 1)))
    name = f"quota-a-{scene.tag}"
    ask(DELETE_TOPICS, 6, {"topics": [{"name": name, "topic_id": None}]})
    ask(CREATE_PARTITIONS, 3, {"topics": [{"name": name, "count": 11, "assignments": None}]})
    ask(CREATE_PARTITIONS, 3, {"topics": [{"name": name, "count": 1, "assignments": None}]})
    ask(CREATE_PARTITIONS, 2, {"topics": [{"name": name, "count": 11, "assignments": None}]})
    ask(DELETE_TOPICS, 4, {"topic_names": [name]})
    return told
