"""Subscriptions by pattern: what matches, when it is looked at again, and patterns that mean harm."""

from __future__ import annotations

import pytest

from barnabas.machines.groups.consumer_states import ConsumerGroupState
from barnabas.machines.groups.patterns import compile_pattern, matching
from barnabas.model.errors import InvalidRegularExpression
from tests.support.consumer_groups import Consumer, Coordinator, settle


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

    @pytest.mark.parametrize("pattern", ["(", "a{2,1}", "*", r"\1(a)", "(?=a)", "((a{100}){100}){100}", r"\pL{1000}"])
    def test_refused(self, pattern: str) -> None:
        with pytest.raises(InvalidRegularExpression, match="not a valid regular expression"):
            compile_pattern(pattern)
        assert matching(pattern, ["a"]) == frozenset()

    def test_patterns_that_hang_other_matchers_do_not(self) -> None:
        assert matching("(a*)*b", ["a" * 249]) == frozenset()
        assert matching("(a|a?)+$", ["a" * 249 + "b"]) == frozenset()


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
