"""What every client library does with a consumer group: one suite, run with each of them.

A test class derives from `GroupScenarios` and names the kind of member, the assignors that its library has, and what
it cannot do. The fixtures are those of tests/compat.
"""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Any, ClassVar

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic

from tests.support.group_wire import owners
from tests.support.members.member import Committed, Joining, Member, Place, places_of
from tests.support.members.waiting import wait_for_members, wait_until_read, wait_until_shared
from tests.support.waiting import wait_until
from tests.support.wire import Connection

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.compat.conftest import TopicMaker


class Crew:
    """The members of one test; whoever is still there at its end leaves."""

    def __init__(self, kind: type[Member], bootstrap: str) -> None:
        self.group = f"g-{uuid.uuid4().hex[:12]}"
        self.kind = kind
        self.bootstrap = bootstrap
        self._members: list[Member] = []

    def join(self, *topics: str, **how: Any) -> Member:
        """A new member of the group."""
        member = self.kind(Joining(**{"bootstrap": self.bootstrap, "group": self.group, "topics": topics, **how}))
        self._members.append(member)
        return member

    def go_home(self) -> None:
        """Let everybody leave."""
        for member in self._members:
            member.leave()


def send(bootstrap: str, topic: str, partitions: int, count: int, prefix: str = "record") -> list[bytes]:
    """Spread so many records evenly over partitions; their values."""
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 1, "log_level": 0})
    values = [f"{prefix} {number}".encode() for number in range(count)]
    for number, value in enumerate(values):
        producer.produce(topic, value, partition=number % partitions)
    assert producer.flush(30) == 0
    return values


def wait_for_shares(members: list[Member], shares: list[int]) -> None:
    """Wait until members hold so many partitions: what is taken from one may be given to another a moment later."""
    wait_for_members(members, lambda: [len(each.owned) for each in members] == shares, f"shares of {shares}", 60)


def wait_until_stable(bootstrap: str, *groups: str) -> None:
    """Wait until the broker has heard of all members of these groups that they hold what they should."""
    with Connection(bootstrap) as connection:
        for group in groups:
            wait_until(lambda group=group: owners(connection, group)[0] == "Stable", f"{group} to be stable")  # type: ignore[misc]


class GroupScenarios:
    """Groups as a user of any client library knows them."""

    kind: ClassVar[type[Member]]
    assignors: ClassVar[tuple[str, ...]]
    keeps_epochs: ClassVar[bool] = True
    """Whether the library tells a committed offset's metadata and leader epoch."""

    @pytest.fixture
    def crew(self, bootstrap: str) -> Iterator[Crew]:
        crew = Crew(self.kind, bootstrap)
        yield crew
        crew.go_home()

    def test_a_group_reads_everything_commits_and_resumes(
        self, bootstrap: str, new_topic: TopicMaker, crew: Crew
    ) -> None:
        topic = new_topic(3)
        first = send(bootstrap, topic, 3, 90)
        reader = crew.join(topic)
        wait_until_read([reader], first)
        assert len(reader.read) == 90
        reader.commit()
        reader.leave()
        second = send(bootstrap, topic, 3, 30, "later")
        successor = crew.join(topic)
        wait_until_read([successor], second)
        assert sorted(value or b"" for value in successor.values()) == sorted(second)
        assert successor.committed(Place(topic, 0)) is not None
        assert (successor.committed(Place(topic, 0)) or Committed(-1)).offset == 30

    def test_what_is_committed_by_itself_is_not_read_again(
        self, bootstrap: str, new_topic: TopicMaker, crew: Crew
    ) -> None:
        topic = new_topic()
        first = send(bootstrap, topic, 1, 50)
        reader = crew.join(topic, commit_every_ms=100)
        wait_until_read([reader], first)
        reader.leave()
        second = send(bootstrap, topic, 1, 10, "later")
        successor = crew.join(topic, commit_every_ms=100)
        wait_until_read([successor], second)
        assert successor.values() == second

    def test_partitions_are_shared_and_taken_over(self, bootstrap: str, new_topic: TopicMaker, crew: Crew) -> None:
        for assignor in self.assignors:
            topic = new_topic(6)
            crew.group = f"g-{uuid.uuid4().hex[:12]}"
            places = places_of(topic, 6)
            members = [crew.join(topic, assignors=(assignor,))]
            wait_until_shared(members, places)
            members += [crew.join(topic, assignors=(assignor,)) for _ in range(2)]
            wait_until_shared(members, places)
            wait_for_shares(members, [2, 2, 2])
            sent = send(bootstrap, topic, 6, 60)
            wait_until_read(members, sent)
            for member in members:
                assert {read.place for read in member.read} == member.owned, assignor
            members.pop(0).leave()
            wait_until_shared(members, places)
            wait_for_shares(members, [3, 3])
            for member in members:
                member.leave()

    def test_a_member_rewinds(self, bootstrap: str, new_topic: TopicMaker, crew: Crew) -> None:
        topic = new_topic()
        sent = send(bootstrap, topic, 1, 40)
        reader = crew.join(topic)
        wait_until_read([reader], sent)
        reader.commit()
        reader.seek(Place(topic, 0), 25)
        wait_until_read([reader], sent[25:])
        assert reader.values() == sent[25:]
        reader.commit({Place(topic, 0): Committed(10)})
        reader.leave()
        successor = crew.join(topic)
        wait_until_read([successor], sent[10:])
        assert successor.values() == sent[10:]

    def test_who_finds_no_offset_starts_where_it_was_told(
        self, bootstrap: str, new_topic: TopicMaker, crew: Crew
    ) -> None:
        topic = new_topic()
        send(bootstrap, topic, 1, 20)
        reader = crew.join(topic, reset="latest")
        wait_until_shared([reader], places_of(topic, 1))
        sent: list[bytes] = []

        def something_came() -> bool:
            sent.extend(send(bootstrap, topic, 1, 1, f"news {len(sent)}"))
            return bool(reader.read)

        wait_for_members([reader], something_came, "a new record", 30)
        wait_until_read([reader], sent[-1:])
        assert set(reader.values()) <= set(sent)

    def test_offsets_are_committed_without_a_subscription(
        self, bootstrap: str, new_topic: TopicMaker, crew: Crew
    ) -> None:
        topic = new_topic(2)
        sent = send(bootstrap, topic, 1, 10)
        place, other = Place(topic, 0), Place(topic, 1)
        loner = crew.join(assigned=(place,))
        wait_until_read([loner], sent)
        wanted = Committed(7, "seven, überall", 0)
        loner.commit({place: wanted})
        loner.leave()
        successor = crew.join(assigned=(place, other))
        wait_until_read([successor], sent[7:])
        assert successor.values() == sent[7:]
        assert successor.committed(place) == (wanted if self.keeps_epochs else Committed(7))
        assert successor.committed(other) is None

    def test_metadata_that_is_too_long_is_refused(self, bootstrap: str, new_topic: TopicMaker, crew: Crew) -> None:
        topic = new_topic()
        loner = crew.join(assigned=(Place(topic, 0),))
        loner.commit({Place(topic, 0): Committed(1, "x" * 4_090)})
        with pytest.raises(Exception, match=r"(?i)metadata_?\s?(string )?too_?\s?large"):
            loner.commit({Place(topic, 0): Committed(2, "x" * 4_100)})
        assert (loner.committed(Place(topic, 0)) or Committed(-1)).offset == 1

    def test_a_stranger_may_not_commit_while_members_are_there(
        self, bootstrap: str, new_topic: TopicMaker, crew: Crew
    ) -> None:
        topic = new_topic()
        member = crew.join(topic)
        wait_until_shared([member], places_of(topic, 1))
        loner = crew.join(assigned=(Place(topic, 0),))
        with pytest.raises(Exception, match=r"(?i)unknown_?\s?member|commit_?failed"):
            loner.commit({Place(topic, 0): Committed(1)})
        member.commit({Place(topic, 0): Committed(3)})
        assert (member.committed(Place(topic, 0)) or Committed(-1)).offset == 3

    def test_partitions_that_are_added_are_noticed(
        self, admin: AdminClient, bootstrap: str, new_topic: TopicMaker, crew: Crew
    ) -> None:
        topic = new_topic(2)
        members = [crew.join(topic) for _ in range(2)]
        wait_until_shared(members, places_of(topic, 2))
        admin.create_partitions([NewPartitions(topic, 5)])[topic].result(30)
        wait_until_shared(members, places_of(topic, 5))
        wait_until_read(members, send(bootstrap, topic, 5, 25))

    def test_topics_that_match_a_pattern_are_noticed(
        self, admin: AdminClient, bootstrap: str, new_topic: TopicMaker, crew: Crew
    ) -> None:
        prefix = f"p-{uuid.uuid4().hex[:8]}"
        first, second, other = f"{prefix}-one", f"{prefix}-two", f"x{prefix}-three"
        create(admin, first, 2)
        create(admin, other, 1)
        member = crew.join(pattern=f"^{prefix}-.*")
        wait_until_shared([member], places_of(first, 2))
        create(admin, second, 3)
        wait_until_shared([member], places_of(first, 2) | places_of(second, 3))
        wait_until_read([member], send(bootstrap, second, 3, 30))

    def test_members_may_subscribe_to_different_topics(self, bootstrap: str, new_topic: TopicMaker, crew: Crew) -> None:
        one, two = new_topic(2), new_topic(3)
        members = [crew.join(one), crew.join(one, two)]
        wait_until_shared(members, places_of(one, 2) | places_of(two, 3))
        assert places_of(two, 3) <= members[1].owned
        values = send(bootstrap, one, 2, 10, "one") + send(bootstrap, two, 3, 10, "two")
        wait_until_read(members, values)

    def test_a_static_member_comes_back_to_its_partitions(
        self, bootstrap: str, new_topic: TopicMaker, crew: Crew
    ) -> None:
        topic = new_topic(4)
        places = places_of(topic, 4)
        stays = crew.join(topic, instance="stays", session_ms=20_000)
        goes = crew.join(topic, instance="goes", session_ms=20_000)
        wait_until_shared([stays, goes], places)
        held, changes = goes.owned, len(stays.changes)
        self.go_away_for_a_moment(goes)
        came_back = crew.join(topic, instance="goes", session_ms=20_000)
        wait_for_members([stays, came_back], lambda: came_back.owned == held, "the same partitions", 30)
        wait_until_shared([stays, came_back], places)
        wait_until_read([stays, came_back], send(bootstrap, topic, 4, 20))
        assert len(stays.changes) == changes

    def go_away_for_a_moment(self, member: Member) -> None:
        """Close the client of a static member in the way that does not give its place away."""
        member.leave()


class EagerAndCooperative(GroupScenarios):
    """What a library that has the cooperative assignor does besides."""

    def test_a_cooperative_rebalance_moves_only_what_it_must(
        self, bootstrap: str, new_topic: TopicMaker, crew: Crew
    ) -> None:
        topic = new_topic(6)
        places = places_of(topic, 6)
        first = crew.join(topic, assignors=("cooperative-sticky",))
        wait_until_shared([first], places)
        second = crew.join(topic, assignors=("cooperative-sticky",))
        wait_until_shared([first, second], places)
        assert len(first.taken()) == 3
        assert first.owned == places - first.taken()
        assert second.owned == first.taken()
        wait_until_read([first, second], send(bootstrap, topic, 6, 60))


def create(admin: AdminClient, topic: str, partitions: int) -> None:
    """Make a topic with this name."""
    admin.create_topics([NewTopic(topic, partitions, 1)])[topic].result(30)
    wait_until(lambda: len(admin.list_topics(topic, timeout=30).topics[topic].partitions) == partitions, topic)
