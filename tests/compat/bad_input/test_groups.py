"""Members that talk nonsense, that are none, or that stop answering: refused or dropped, and the group goes on."""

from __future__ import annotations

import contextlib
import os
import time
import uuid
from typing import TYPE_CHECKING, Any, Final

import pytest

from tests.compat.bad_input.victim import CREATE_TOPICS, TOPIC
from tests.support.group_wire import (
    CONSUMER_GROUP_HEARTBEAT,
    FIND_COORDINATOR,
    HEARTBEAT,
    JOIN_GROUP,
    NEWEST,
    OFFSET_COMMIT,
    SYNC_GROUP,
    assignment,
    beating,
    committing,
    joining,
    subscription,
)
from tests.support.waiting import wait_until
from tests.support.wire import Connection, request

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.compat.bad_input.victim import Victim

UNKNOWN_TOPIC_OR_PARTITION, OFFSET_METADATA_TOO_LARGE, ILLEGAL_GENERATION, UNKNOWN_MEMBER_ID = 3, 12, 22, 25
REBALANCE_IN_PROGRESS, MEMBER_ID_REQUIRED, FENCED_MEMBER_EPOCH, INVALID_REGULAR_EXPRESSION = 27, 79, 110, 128
NOT_YET: Final = {14, 15, 16}
"""The coordinator is loading, or is being made."""

NOISE: Final = {
    "empty": b"",
    "a byte": b"\0",
    "cut short": subscription(TOPIC)[:-3],
    "a version to come": b"\x7f\xff" + subscription(TOPIC)[2:],
    "not UTF-8": b"\0\1\0\0\0\1\0\4\xff\xfe\xfd\xfc\0\0\0\0",
}
WORSE: Final = {
    "all ones": b"\xff" * 40,
    "two thousand million topics": b"\0\1\x7f\xff\xff\xff",
    "a topic that is longer than the bytes": b"\0\1\0\0\0\1\x7f\xff a",
    "a negative number of topics": b"\0\1\xff\xff\xff\xf0",
}


class Voice(Connection):
    """A connection that speaks of groups, in the newest version of each API."""

    def say(self, key: int, body: dict[str, Any]) -> Any:
        """Ask, and ask again while the coordinator is being made."""
        answer: Any = None

        def answered() -> bool:
            nonlocal answer
            answer = self.ask(key, NEWEST[key], body)
            return getattr(answer, "error_code", 0) not in NOT_YET

        wait_until(answered, f"a coordinator's answer to API {key}")
        return answer

    def join(self, group: str, **how: Any) -> Any:
        """Join with an id that the broker gives, and with another one if a short session ended before it was used."""
        answer: Any = None

        def joined() -> bool:
            nonlocal answer
            answer = self.say(JOIN_GROUP, {**joining(group, TOPIC), **how})
            if answer.error_code == MEMBER_ID_REQUIRED:
                answer = self.say(JOIN_GROUP, {**joining(group, TOPIC, answer.member_id), **how})
            return bool(answer.error_code != UNKNOWN_MEMBER_ID)

        wait_until(joined, "an id that is known when it is used")
        return answer

    def sync(self, group: str, joined: Any) -> Any:
        """Give the one partition to the one member."""
        body = {
            "group_id": group,
            "generation_id": joined.generation_id,
            "member_id": joined.member_id,
            "protocol_type": "consumer",
            "protocol_name": "range",
            "assignments": [{"member_id": joined.member_id, "assignment": assignment(TOPIC, 0)}],
        }
        return self.say(SYNC_GROUP, body)

    def beat(self, group: str, joined: Any) -> int:
        """The error code of a heartbeat."""
        mine = {"group_id": group, "generation_id": joined.generation_id, "member_id": joined.member_id}
        return int(self.say(HEARTBEAT, mine).error_code)


@pytest.fixture
def voice(broker: Victim) -> Iterator[Voice]:
    with Voice(broker.bootstrap, seconds=30) as opened:
        opened.ask(FIND_COORDINATOR, 4, {"key_type": 0, "coordinator_keys": ["any"]})
        yield opened


@pytest.fixture
def group() -> str:
    return f"bad-{uuid.uuid4().hex[:12]}"


def goes_on(broker: Victim, group: str, **how: Any) -> None:
    """A member of good manners joins, is given its partition, and stays."""
    with Voice(broker.bootstrap, seconds=30) as good:
        joined = good.join(group, **how)
        assert joined.error_code == 0
        assert good.sync(group, joined).error_code == 0
        assert good.beat(group, joined) == 0


@pytest.mark.parametrize("noise", NOISE.values(), ids=NOISE.keys())
def test_a_subscription_that_is_noise(broker: Victim, voice: Voice, group: str, noise: bytes) -> None:
    joined = voice.join(
        group, protocols=[{"name": "range", "metadata": noise}], session_timeout=500, rebalance_timeout=500
    )
    assert joined.error_code == 0
    goes_on(broker, group)


@pytest.mark.parametrize("noise", WORSE.values(), ids=WORSE.keys())
def test_a_subscription_that_is_worse(broker: Victim, voice: Voice, group: str, noise: bytes) -> None:
    """Apache Kafka answers nobody in a group that has heard this; other groups go on, and here this one too."""
    with Voice(broker.bootstrap, seconds=1) as bad, contextlib.suppress(TimeoutError):
        bad.join(group, protocols=[{"name": "range", "metadata": noise}], session_timeout=500, rebalance_timeout=500)
    goes_on(broker, f"other-{group}")
    if "BARNABAS_TEST_BOOTSTRAP" not in os.environ:
        goes_on(broker, group)


def test_an_assignment_that_is_noise_is_between_the_leader_and_its_members(voice: Voice, group: str) -> None:
    joined = voice.join(group)
    noise = [{"member_id": joined.member_id, "assignment": b"\xff" * 100}]
    body = {
        "group_id": group,
        "generation_id": joined.generation_id,
        "member_id": joined.member_id,
        "protocol_type": "consumer",
        "protocol_name": "range",
        "assignments": [*noise, {"member_id": "nobody", "assignment": b"x"}],
    }
    answer = voice.say(SYNC_GROUP, body)
    assert (answer.error_code, answer.assignment) == (0, b"\xff" * 100)
    assert voice.beat(group, joined) == 0


HANGING: Final = {
    "nested repetition": "(a+)+$",
    "alternatives that overlap": "(a|aa)+$",
    "many stars": "a*" * 100 + "b",
    "many optional": "a?" * 200 + "a" * 200,
    "a million": "((a{100}){100}){100}",
    "a thousand groups": "(" * 1_000 + "a" + ")" * 1_000,
}


@pytest.mark.parametrize("pattern", HANGING.values(), ids=HANGING.keys())
def test_a_pattern_that_would_hang_a_matcher(broker: Victim, voice: Voice, group: str, pattern: str) -> None:
    victim = "a" * 200 + "b"
    wanted = {"name": victim, "num_partitions": 1, "replication_factor": 1}
    voice.ask(CREATE_TOPICS, 7, {"topics": [wanted], "timeout": 10_000})
    member = f"member-{group}"
    started = time.monotonic()
    body = beating(group, member, 0, subscribed_topic_regex=pattern, rebalance_timeout=10_000, topic_partitions=[])
    answer = voice.say(CONSUMER_GROUP_HEARTBEAT, body)
    assert answer.error_code in (0, INVALID_REGULAR_EXPRESSION)
    with Voice(broker.bootstrap, seconds=30) as other:
        other.join(f"other-{group}")
    if answer.error_code == 0:
        assert voice.say(CONSUMER_GROUP_HEARTBEAT, beating(group, member, answer.member_epoch)).error_code == 0
        assert voice.say(CONSUMER_GROUP_HEARTBEAT, beating(group, member, -1)).error_code == 0
    assert time.monotonic() - started < 30


@pytest.mark.parametrize("pattern", ["a(b", "[", "(?=a)", r"(a)\1", "*"])
def test_a_pattern_that_is_none(voice: Voice, group: str, pattern: str) -> None:
    body = beating(group, "m", 0, subscribed_topic_regex=pattern, rebalance_timeout=10_000, topic_partitions=[])
    assert voice.say(CONSUMER_GROUP_HEARTBEAT, body).error_code == INVALID_REGULAR_EXPRESSION


def test_strangers_and_latecomers_are_told_so(voice: Voice, group: str) -> None:
    joined = voice.join(group)
    voice.sync(group, joined)
    stranger = {"group_id": group, "generation_id": joined.generation_id, "member_id": "stranger"}
    assert voice.say(HEARTBEAT, stranger).error_code == UNKNOWN_MEMBER_ID
    late = {"group_id": group, "generation_id": joined.generation_id - 1, "member_id": joined.member_id}
    assert voice.say(HEARTBEAT, late).error_code == ILLEGAL_GENERATION
    assert voice.beat(group, joined) == 0


def test_metadata_that_is_too_long_is_not_kept(voice: Voice, group: str) -> None:
    for length, expected in ((4_096, 0), (4_097, OFFSET_METADATA_TOO_LARGE), (32_000, OFFSET_METADATA_TOO_LARGE)):
        body = committing(group, {"name": TOPIC}, 1, metadata="x" * length)
        answer = voice.ask(OFFSET_COMMIT, 9, body)
        assert answer.topics[0].partitions[0].error_code == expected


def test_a_member_that_falls_silent_is_dropped(broker: Victim, voice: Voice, group: str) -> None:
    silent = voice.join(group, session_timeout=600)
    voice.sync(group, silent)
    goes_on(broker, group)
    assert voice.beat(group, silent) in (UNKNOWN_MEMBER_ID, ILLEGAL_GENERATION)


def test_a_leader_that_never_assigns_is_dropped(broker: Victim, voice: Voice, group: str) -> None:
    """Its followers wait for it as long as its session lasts, and begin again without it."""
    leader = voice.join(group, session_timeout=1_000, rebalance_timeout=1_000)
    goes_on(broker, group)
    assert voice.beat(group, leader) in (UNKNOWN_MEMBER_ID, ILLEGAL_GENERATION)


def test_a_member_that_lives_but_never_joins_again_is_dropped(broker: Victim, voice: Voice, group: str) -> None:
    stubborn = voice.join(group, rebalance_timeout=1_500)
    voice.sync(group, stubborn)
    with Voice(broker.bootstrap, seconds=30) as other:
        asked = other.say(JOIN_GROUP, joining(group, TOPIC, rebalance_timeout=1_500))
        other.send_frame(_join_frame(group, asked.member_id))
        told: set[int] = set()

        def is_dropped() -> bool:
            told.add(voice.beat(group, stubborn))
            return not told <= {0, REBALANCE_IN_PROGRESS}

        wait_until(is_dropped, "its end", every=0.2)
        assert told <= {0, REBALANCE_IN_PROGRESS, UNKNOWN_MEMBER_ID, ILLEGAL_GENERATION}
        assert other.receive_frame() is not None
    goes_on(broker, group)


def _join_frame(group: str, member_id: str) -> bytes:
    return request(JOIN_GROUP, 9, 1, joining(group, TOPIC, member_id, rebalance_timeout=1_500, session_timeout=30_000))


def test_a_member_that_does_not_give_back_what_it_must_is_fenced(broker: Victim, voice: Voice, group: str) -> None:
    """In the new protocol a member has its rebalance timeout to let go of a partition."""

    def settle(who: Voice, member: str, epoch: int, count: int) -> int:
        """Go on until so many partitions were given; the epoch then."""
        latest = epoch

        def given() -> bool:
            nonlocal latest
            answer = who.say(CONSUMER_GROUP_HEARTBEAT, beating(group, member, latest))
            assert answer.error_code == 0
            latest = answer.member_epoch
            places = () if answer.assignment is None else answer.assignment.topic_partitions
            return sum(len(place.partitions) for place in places) == count

        wait_until(given, f"{count} partitions for {member}", every=0.1)
        return latest

    topic = f"kept-{group}"
    voice.ask(
        CREATE_TOPICS,
        7,
        {"topics": [{"name": topic, "num_partitions": 2, "replication_factor": 1}], "timeout": 10_000},
    )
    how = {"subscribed_topic_names": [topic], "rebalance_timeout": 1_500, "topic_partitions": []}
    keeper = voice.say(CONSUMER_GROUP_HEARTBEAT, beating(group, "keeper", 0, **how))
    assert keeper.error_code == 0
    epoch = settle(voice, "keeper", keeper.member_epoch, 2) if keeper.assignment is None else keeper.member_epoch
    with Voice(broker.bootstrap, seconds=30) as other:
        second = other.say(CONSUMER_GROUP_HEARTBEAT, beating(group, "second", 0, **how))
        assert second.error_code == 0

        def fenced() -> bool:
            other.say(CONSUMER_GROUP_HEARTBEAT, beating(group, "second", second.member_epoch))
            answer = voice.say(CONSUMER_GROUP_HEARTBEAT, beating(group, "keeper", epoch))
            return bool(answer.error_code in (UNKNOWN_MEMBER_ID, FENCED_MEMBER_EPOCH))

        wait_until(fenced, "the end of who keeps everything", every=0.1)
