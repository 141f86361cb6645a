"""How fast replicas that are being moved may be copied."""

from __future__ import annotations

import pytest

from barnabas.machines.replication_quota import ReplicationQuota, is_named

LIMIT = 100


@pytest.fixture
def quota() -> ReplicationQuota:
    """Eleven samples of a second, as by default."""
    return ReplicationQuota(11, 1)


def test_nothing_is_not_too_much(quota: ReplicationQuota) -> None:
    assert not quota.is_exceeded(0, now=5)


def test_the_share_of_a_whole_window_may_be_used_at_once(quota: ReplicationQuota) -> None:
    quota.record(10 * LIMIT, now=0)
    assert not quota.is_exceeded(LIMIT, now=0)
    quota.record(1, now=0.5)
    assert quota.is_exceeded(LIMIT, now=0.5)


def test_what_was_used_is_forgotten_when_its_sample_is_old(quota: ReplicationQuota) -> None:
    quota.record(20 * LIMIT, now=0)
    assert quota.is_exceeded(LIMIT, now=10.9)
    assert not quota.is_exceeded(LIMIT, now=11)


def test_over_a_long_time_no_more_is_let_through_than_the_limit(quota: ReplicationQuota) -> None:
    copied = 0
    for tick in range(10_000):
        if not quota.is_exceeded(LIMIT, now := tick / 100):
            quota.record(7, now)
            copied += 7
    assert 90 * LIMIT < copied < 112 * LIMIT


@pytest.mark.parametrize(
    ("replicas", "named"),
    [((), False), (("*",), True), (("0:1",), False), (("0:1", "3:2"), True), (("2:3",), False)],
)
def test_a_list_names_replicas_by_partition_and_broker(replicas: tuple[str, ...], named: bool) -> None:
    assert is_named(frozenset(replicas), 3, 2) is named
