"""Subscriptions by pattern: what matches, when it is looked at again, and patterns that mean harm."""

from __future__ import annotations

import random
import re
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from kio.schema.errors import ErrorCode

from barnabas.machines.controller.image import BrokerImage, PartitionImage
from barnabas.machines.groups.consumer import patterns
from barnabas.machines.groups.consumer.patterns import Matches, compile_pattern, matching
from barnabas.machines.groups.consumer.states import ConsumerGroupState
from barnabas.model.errors import InvalidRegularExpression
from barnabas.protocol.coordinator_records import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
    CoordinatorRecord,
)
from tests.support.consumer_groups import GROUP, Consumer, Coordinator, settle

if TYPE_CHECKING:
    from collections.abc import Iterable


DOCS = Path(__file__).parents[5] / "docs"


def by_pattern(coordinator: Coordinator, member_id: str, regex: str) -> Consumer:
    """A member that subscribes to a pattern only."""
    return Consumer(coordinator, member_id, None, {"subscribed_topic_regex": regex})


def topics_of(consumer: Consumer) -> set[str]:
    """The topics that it reads."""
    return {name for name, _ in consumer.partitions()}


class TestMatching:
    def test_whole_names_match(self) -> None:
        assert matching("or.*", ["orders", "more", "or"]) == {"orders", "or"}
        assert matching("a|b", ["a", "b", "ab"]) == {"a", "b"}

    @pytest.mark.parametrize(
        "pattern",
        ["(", "a{2,1}", "*", r"\1(a)", "(?=a)", "a)(b", "((a{100}){100}){100}", r"\pL{1000}", "a" * 1_025, ".?" * 100],
    )
    def test_refused(self, pattern: str) -> None:
        with pytest.raises(InvalidRegularExpression, match="not a valid regular expression"):
            compile_pattern(pattern)
        assert matching(pattern, ["a"]) == frozenset()

    @pytest.mark.parametrize("page", ["groups.md", "coming-from-kafka.md"])
    def test_the_bounds_are_documented(self, page: str) -> None:
        text = " ".join((DOCS / page).read_text(encoding="utf-8").split())
        assert f"{patterns.MAX_LENGTH:,} characters" in text
        assert f"{patterns.MAX_SIZE} instructions" in text
        assert ErrorCode.invalid_regular_expression.name.upper() in text

    def test_the_answer_says_what_is_too_large(self) -> None:
        answer = by_pattern(Coordinator({"orders": 1}), "m1", "(a|b.)?" * 30).beat()
        assert answer.error_code is ErrorCode.invalid_regular_expression
        assert answer.error_message is not None
        assert f"instructions of at most {patterns.MAX_SIZE}" in answer.error_message

    def test_patterns_that_hang_other_matchers_do_not(self) -> None:
        assert matching("(a*)*b", ["a" * 249]) == frozenset()
        assert matching("(a|a?)+$", ["a" * 249 + "b"]) == frozenset()

    @pytest.mark.parametrize(
        "pattern",
        [
            *(".*", "a|ab", "ab|a", "a*", "^a.*$", "(?i)A.*", "(?s)a.*", "[^a]*", r"[^a]+b", r"\D*", r"(a|\n)*b?"),
            *(r"\Aa.*", r"a.*\z", r"a\C*", r"\Qab", r"\Qa|b\E|ab", "(?-m)^a.*$", "(?i-m:^A)b", "(?m)^a$|^b$", r"\ba\b"),
            *(r"a\s*b|b\s*", r"\W*", "(?U)a.*", "é?a", r"[^\x{100}]", r"\p{Greek}?b", "(?:)", "|b", r".*\.[0-9]"),
        ],
    )
    def test_names_are_matched_one_by_one_though_they_are_searched_together(self, pattern: str) -> None:
        names = ["a", "ab", "b", "ba", "aab", "b.1", "c_d", "a-b", "a", "b"]
        assert matching(pattern, names) == frozenset[str]().union(*(matching(pattern, [name]) for name in names))
        everything = re.compile(re2_as_python(pattern))
        assert matching(pattern, names) == {name for name in names if everything.fullmatch(name)}

    def test_alternatives_of_names_may_be_long(self) -> None:
        names = [f"team-{number}-orders.{number * 7}" for number in range(45)]
        pattern = "|".join(name.replace(".", r"\.") for name in names)
        assert matching(pattern, [*names, "team-1-orders.8"]) == set(names)
        assert matching(f"^({pattern}).*$", ["team-1-orders.77"]) == {"team-1-orders.77"}

    @pytest.mark.parametrize(
        "pattern",
        [
            *("(.?){900}a.{30}q", "(.?){200}a.{30}q", "(.?){20}a.{30}q", ".*a.{30}q", ".*a.{55}q", "(.*a.{20}){2}"),
            *("(.?a?b?){18}z", "(a*b*.*){18}z", "(a*b*.*){300}z", "(.*.*){40}q", "(.{0,12}a){3}", r"(\w?\w?){15}z"),
            *("a{1000}b{1000}" * 73, "(((.?){9}){9}){9}", ".{1000}" * 140),
        ],
    )
    def test_no_pattern_holds_up_the_broker(self, pattern: str) -> None:
        chance = random.Random(1)
        names = ["orders-" + "".join(chance.choice("abq") for _ in range(23)) for _ in range(1_000)]
        started = time.process_time()
        matching(pattern, names)
        assert time.process_time() - started < 0.3

    def test_only_topics_that_came_are_looked_at(self, monkeypatch: pytest.MonkeyPatch) -> None:
        looked_at: list[set[str]] = []

        def spy(text: str, names: Iterable[str]) -> frozenset[str]:
            looked_at.append(set(names))
            return matching(text, names)

        monkeypatch.setattr(patterns, "matching", spy)
        matches = Matches()
        topics = {"orders": 1, "payments": 1}
        assert matches.among("o.*", topics) == matches.among("o.*", topics) == matches.among("o.*", dict(topics))
        assert looked_at == [{"orders", "payments"}]
        assert matches.among("o.*", {"ordered": 1, "payments": 1}) == {"ordered"}
        assert looked_at[1:] == [{"ordered"}]

    def test_only_so_many_patterns_are_remembered(self) -> None:
        matches = Matches()
        for number in range(patterns.MAX_REMEMBERED + 10):
            assert matches.among(f"t{number}", {"t1": 1, "t100": 1}) == (
                {f"t{number}"} if number in (1, 100) else set()
            )
        assert matches.among("t1", {"t1": 1, "t100": 1}) == {"t1"}


def re2_as_python(pattern: str) -> str:
    """The same pattern as Python writes it."""
    for theirs, ours in {
        r"\z": r"\Z",
        r"\C": ".",
        r"\Qab": "ab",
        r"\Qa|b\E": r"a\|b",
        "(?-m)": "",
        "(?i-m:^A)": "^[aA]",
        "(?U)": "",
        r"\x{100}": r"\u0100",
        r"\p{Greek}": "\u0391",
    }.items():
        pattern = pattern.replace(theirs, ours)
    return pattern


class TestSubscriptions:
    def test_topics_that_match_are_read_at_once(self) -> None:
        coordinator = Coordinator({"orders": 1, "ordered": 1, "payments": 1})
        consumer = by_pattern(coordinator, "m1", "order.*")
        consumer.beat()
        assert topics_of(consumer) == {"orders", "ordered"}
        assert coordinator.group.is_subscribed_to("ordered")
        assert not coordinator.group.is_subscribed_to("payments")

    def test_names_and_patterns_add_up(self) -> None:
        coordinator = Coordinator({"orders": 1, "payments": 1})
        consumer = Consumer(coordinator, "m1", ("payments",), {"subscribed_topic_regex": "order.*"})
        consumer.beat()
        assert topics_of(consumer) == {"orders", "payments"}

    def test_a_new_topic_is_found_ten_seconds_after_the_last_look(self) -> None:
        coordinator = Coordinator({"orders": 1})
        consumer = by_pattern(coordinator, "m1", "order.*")
        consumer.beat()
        coordinator.set_topics({"orders": 1, "ordered": 1})
        coordinator.advance(10_000)
        consumer.beat()
        assert topics_of(consumer) == {"orders"}
        coordinator.advance(1)
        consumer.beat()
        assert topics_of(consumer) == {"orders", "ordered"}

    def test_topics_that_do_not_match_are_no_reason_to_look(self) -> None:
        coordinator = Coordinator({"orders": 1})
        consumer = by_pattern(coordinator, "m1", "order.*")
        consumer.beat()
        log = list(coordinator.log)
        coordinator.set_topics({"orders": 1, "payments": 1})
        coordinator.advance(10_001)
        consumer.beat()
        assert coordinator.log == log

    def test_everything_is_looked_at_again_after_the_interval(self) -> None:
        coordinator = Coordinator({"orders": 1}, consumer_regex_refresh_interval_ms=20_000)
        consumer = by_pattern(coordinator, "m1", "order.*")
        consumer.beat()
        before = coordinator.group.resolved["order.*"].timestamp
        coordinator.advance(20_000)
        consumer.beat()
        assert coordinator.group.resolved["order.*"].timestamp == before
        coordinator.advance(1)
        consumer.beat()
        assert coordinator.group.resolved["order.*"].timestamp == coordinator.now_ms

    def test_a_deleted_topic_is_taken_away(self) -> None:
        coordinator = Coordinator({"orders": 1, "ordered": 1})
        consumer = by_pattern(coordinator, "m1", "order.*")
        consumer.beat()
        coordinator.set_topics({"orders": 1})
        settle([consumer])
        assert topics_of(consumer) == {"orders"}

    def test_another_pattern_replaces_the_first(self) -> None:
        coordinator = Coordinator({"orders": 1, "payments": 1})
        consumer = by_pattern(coordinator, "m1", "order.*")
        consumer.beat()
        consumer.fields["subscribed_topic_regex"] = "pay.*"
        consumer.beat(subscribed_topic_regex="pay.*")
        settle([consumer])
        assert topics_of(consumer) == {"payments"}
        assert set(coordinator.group.resolved) == {"pay.*"}
        consumer.beat(subscribed_topic_regex="", topics=["orders"])
        settle([consumer])
        assert topics_of(consumer) == {"orders"}
        assert not coordinator.group.resolved

    def test_a_second_pattern_waits_for_its_turn(self) -> None:
        coordinator = Coordinator({"orders": 1, "payments": 1})
        first, second = by_pattern(coordinator, "m1", "order.*"), by_pattern(coordinator, "m2", "pay.*")
        first.beat()
        second.beat()
        assert topics_of(second) == set()
        coordinator.advance(10_001)
        settle([first, second])
        assert topics_of(second) == {"payments"}
        assert coordinator.state() is ConsumerGroupState.STABLE

    def test_the_last_subscriber_takes_its_pattern_along(self) -> None:
        coordinator = Coordinator({"orders": 1, "payments": 1})
        first, second = by_pattern(coordinator, "m1", "order.*"), by_pattern(coordinator, "m2", "order.*")
        settle([first, second])
        first.leave()
        assert set(coordinator.group.resolved) == {"order.*"}
        second.leave()
        assert not coordinator.group.resolved
        assert coordinator.group.metadata_hash == 0

    def test_after_a_reload_patterns_are_looked_at_once(self) -> None:
        coordinator = Coordinator({"orders": 1})
        consumer = by_pattern(coordinator, "m1", "order.*")
        consumer.beat()
        again = consumer.coordinator = coordinator.reloaded()
        again.advance(10_001)
        consumer.beat()
        log = list(again.log)
        assert again.group.resolved["order.*"].timestamp == again.now_ms
        again.advance(10_001)
        consumer.beat()
        assert again.log == log

    def test_patterns_that_are_much_work_are_resolved_a_part_at_a_time(self) -> None:
        coordinator = Coordinator({"orders": 1, "payments": 1})
        consumers = [by_pattern(coordinator, f"m{number}", f"(o?){{40}}rders.*|{number}") for number in range(10)]
        for consumer in consumers:
            consumer.beat()
        assert len(coordinator.group.resolved) == 1
        rounds = 1
        while len(coordinator.group.resolved) < len(consumers):
            coordinator.advance(10_001)
            for consumer in consumers:
                consumer.beat()
            rounds += 1
        assert 2 < rounds < 10
        assert all(found.topics == {"orders"} for found in coordinator.group.resolved.values())

    def test_a_member_that_is_fenced_does_not_use_up_the_look_at_new_topics(self) -> None:
        coordinator = Coordinator({"orders": 1})
        consumer, lost = by_pattern(coordinator, "m1", "order.*"), by_pattern(coordinator, "m2", "order.*")
        settle([consumer, lost])
        unknown = ConsumerGroupCurrentMemberAssignmentValue(lost.epoch, lost.epoch, 127, (), ())
        key = ConsumerGroupCurrentMemberAssignmentKey(GROUP, "m2")
        coordinator.rules.replay(CoordinatorRecord(key, unknown))
        coordinator.set_topics({"orders": 2, "ordered": 1})
        coordinator.advance(10_001)
        answer = coordinator.heartbeat(member_id="m2", epoch=lost.epoch)
        assert answer.error_code is ErrorCode.fenced_member_epoch
        epoch = coordinator.group.epoch
        consumer.beat()
        assert coordinator.group.epoch == epoch + 1
        assert coordinator.group.resolved["order.*"].topics == {"orders", "ordered"}


class TestChangesOfTopics:
    def test_leaders_and_replicas_in_sync_are_no_reason_to_compare(self) -> None:
        coordinator = Coordinator({"orders": 1})
        consumer = by_pattern(coordinator, "m1", "order.*")
        settle([consumer])
        self.change(coordinator, PartitionImage(0, -1, 5, (1,), (), 7))
        assert coordinator.group.metadata_current
        self.change(coordinator, PartitionImage(0, 2, 6, (2, 1), (2,), 8))
        assert coordinator.group.metadata_current

    def test_racks_are(self) -> None:
        coordinator = Coordinator({"orders": 1})
        consumer = by_pattern(coordinator, "m1", "order.*")
        settle([consumer])
        brokers = {number: BrokerImage(broker_id=number, epoch=1, endpoints={}, rack=f"r{number}") for number in (1, 2)}
        self.change(coordinator, PartitionImage(0, 1, 0, (1,), (1,)), brokers)
        assert not coordinator.group.metadata_current
        epoch = coordinator.group.epoch
        settle([consumer])
        assert coordinator.group.epoch == epoch + 1
        self.change(coordinator, PartitionImage(0, 2, 1, (2,), (2,)))
        assert not coordinator.group.metadata_current

    def test_other_topics_are_not(self) -> None:
        coordinator = Coordinator({"orders": 1, "payments": 1})
        consumer, other = by_pattern(coordinator, "m1", "order.*"), Consumer(coordinator, "m2", ("orders",))
        settle([consumer, other])
        coordinator.set_topics({"orders": 1, "payments": 2, "more": 1})
        assert coordinator.group.metadata_current
        assert not coordinator.group.stale_regexes
        coordinator.set_topics({"orders": 2, "payments": 2, "more": 1})
        assert not coordinator.group.metadata_current

    def change(
        self, coordinator: Coordinator, partition: PartitionImage, brokers: dict[int, BrokerImage] | None = None
    ) -> None:
        """Change the one partition of `orders`."""
        image = coordinator.table.image
        topics = {"orders": replace(image.topics["orders"], partitions=(partition,))}
        coordinator.table.image = replace(image, topics=topics, brokers=image.brokers if brokers is None else brokers)
        coordinator.run(coordinator.rules.topics_changed({"orders"}, coordinator.now_ms))
