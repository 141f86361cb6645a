"""Quotas against a plain model of them: a list of everything that was ever used, looked over from its start."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.machines.security.quota_entities import QuotaEntity
from barnabas.machines.security.quotas import (
    LONGEST_MS,
    ClientShares,
    QuotaLimits,
    QuotaWindow,
    Rate,
    TokenBucket,
)
from barnabas.machines.security.usages import IDLE_SECONDS, LONGEST_NAME, MOST_REMEMBERED, UsageOwner, Usages, shortened

WINDOW = QuotaWindow(11, 1.0)


class PlainRate:
    """Kafka's Rate over a SampledStat, in whole milliseconds, with a ring of samples that are reset."""

    def __init__(self, samples: int, length_ms: int) -> None:
        self._number, self._length = samples, length_ms
        self._samples: list[list[float]] = []
        self._current = 0

    def record(self, value: float, now: int) -> None:
        if not self._samples:
            self._samples.append([now, now, 0.0])
        sample = self._samples[self._current]
        if now - sample[0] >= self._length:
            self._current = (self._current + 1) % self._number
            if self._current >= len(self._samples):
                self._samples.append([now, now, 0.0])
            else:
                self._samples[self._current] = [now, now, 0.0]
            sample = self._samples[self._current]
        sample[1], sample[2] = now, sample[2] + value

    def wait_ms(self, quota: float, now: int) -> int:
        for place, (_, last, _) in enumerate(self._samples):
            if now - last >= self._number * self._length:
                self._samples[place] = [now, now, 0.0]
        elapsed = now - min(began for began, _, _ in self._samples)
        lacking = self._number - 1 - int(elapsed / self._length)
        window = max(elapsed + max(lacking, 0) * self._length, 1)
        rate = sum(total for _, _, total in self._samples) / (window / 1000)
        return 0 if rate <= quota else int((rate - quota) / quota * window + 0.5)


@given(
    st.lists(st.tuples(st.integers(0, 24), st.integers(0, 5000)), min_size=1, max_size=60),
    st.integers(1, 2000),
    st.integers(2, 12),
    st.sampled_from([500, 1000, 2000]),
)
@settings(max_examples=150)
def test_a_rate_and_its_throttle_time_are_kafkas(
    uses: list[tuple[int, int]], quota: int, samples: int, length_ms: int
) -> None:
    ours, plain, window, now = Rate(), PlainRate(samples, length_ms), QuotaWindow(samples, length_ms / 1000), 1000
    for pause, amount in uses:
        now += 125 * pause  # an eighth of a second, of which floats lose nothing
        ours.record(amount, now / 1000, window)
        plain.record(amount, now)
        assert abs(ours.wait_ms(quota, now / 1000, window) - plain.wait_ms(quota, now)) <= 1


def test_a_full_window_may_be_used_at_once_and_then_no_more() -> None:
    rate = Rate()
    rate.record(1000, 5.0, WINDOW)
    assert rate.wait_ms(100, 5.0, WINDOW) == 0
    rate.record(1, 5.0, WINDOW)
    assert rate.wait_ms(100, 5.0, WINDOW) == 10
    assert rate.wait_ms(100, 5.5, WINDOW) == 0


def test_a_clock_that_goes_back_or_jumps_ahead_does_no_harm() -> None:
    rate = Rate()
    rate.record(10_000, 100.0, WINDOW)
    assert rate.wait_ms(100, 50.0, WINDOW) > 0
    rate.record(1, 50.0, WINDOW)
    assert rate.wait_ms(100, 1e9, WINDOW) == 0
    bucket = TokenBucket()
    assert bucket.wait_ms(1, 100.0, WINDOW) == 0
    bucket.take(20)
    assert bucket.wait_ms(1, 50.0, WINDOW) == bucket.wait_ms(1, 50.0, WINDOW) == 9000
    assert bucket.wait_ms(1, 1e9, WINDOW) == 0


def test_a_wait_fits_into_a_response() -> None:
    rate = Rate()
    rate.record(1e15, 0.0, WINDOW)
    assert rate.wait_ms(1, 0.0, WINDOW) == LONGEST_MS


@given(st.lists(st.tuples(st.floats(0, 20), st.integers(0, 40)), max_size=40), st.floats(0.1, 10))
def test_a_token_bucket_never_gives_more_than_a_burst_and_its_rate(uses: list[tuple[float, int]], quota: float) -> None:
    bucket, now, taken = TokenBucket(), 0.0, 0
    for pause, amount in uses:
        now += pause
        if bucket.wait_ms(quota, now, WINDOW) == 0:
            assert taken <= 11 * quota + now * quota + 1e-6
            bucket.take(amount)
            taken += amount


NAMES = st.sampled_from(["", "a", "b"])
LEVELS = [
    (True, True, "uc"),
    (True, False, "uc"),
    (True, None, "u"),
    (False, True, "uc"),
    (False, False, "uc"),
    (False, None, "u"),
    (None, True, "c"),
    (None, False, "c"),
]
"""Kafka's order: whether the user, and the client id, is named, the default or left out; and who shares the quota."""


@given(
    st.dictionaries(
        st.builds(QuotaEntity, st.none() | NAMES, st.none() | NAMES), st.integers(1, 99).map(float), max_size=12
    ),
    st.sampled_from(["a", "b", "c"]),
    st.sampled_from(["a", "b", "c"]),
)
def test_the_most_specific_of_eight_levels_counts(quotas: dict[QuotaEntity, float], user: str, client_id: str) -> None:
    def named(is_named: bool | None, name: str) -> str | None:
        return None if is_named is None else name if is_named else ""

    expected: Any = None
    for names_user, names_client, shared in LEVELS:
        quota = quotas.get(QuotaEntity(named(names_user, user), named(names_client, client_id)))
        if quota is not None:
            of_user, of_client = user if "u" in shared else None, client_id if "c" in shared else None
            owner = UsageOwner("request_percentage", of_user, of_client)
            expected = owner, quota
            break
    limits = QuotaLimits({entity: {"request_percentage": value} for entity, value in quotas.items()})
    for _ in range(2):
        assert limits.find("request_percentage", user, client_id) == expected
    assert limits.find("producer_byte_rate", user, client_id) is None


def shares(**quotas: float) -> ClientShares:
    made = ClientShares(WINDOW, WINDOW)
    made.limits = QuotaLimits({QuotaEntity(client_id=""): quotas})
    return made


def test_a_fetch_that_is_too_large_is_not_counted() -> None:
    made = shares(consumer_byte_rate=100)
    assert made.most_at_once("u", "c") == 1000
    assert made.fetched("u", "c", 900, 0.0) == 0
    assert made.fetched("u", "c", 300, 0.0) == made.fetched("u", "c", 300, 0.0) == 2000
    assert made.fetched("u", "c", 100, 0.0) == 0


def test_time_is_counted_against_the_next_request_and_waits_are_no_longer_than_a_sample() -> None:
    made = shares(request_percentage=1)
    assert made.is_timed("u", "c")
    assert made.time_wait_ms("u", "c", 0.0) == 0
    made.took("u", "c", 0.1, 0.0)
    assert made.time_wait_ms("u", "c", 0.0) == 0
    made.took("u", "c", 0.0005, 0.0)
    assert made.time_wait_ms("u", "c", 0.0) == 50
    made.took("u", "c", 9.0, 0.0)
    assert made.time_wait_ms("u", "c", 0.0) == 1000


def test_connections_of_an_address_that_are_refused_do_not_count() -> None:
    made = ClientShares(WINDOW, WINDOW)
    made.limits = QuotaLimits({QuotaEntity(ip=""): {"connection_creation_rate": 1.0}})
    waits = [made.connected("10.0.0.1", 0.0) for _ in range(30)]
    assert waits == [0] * 10 + [1000] * 20
    assert made.connected("10.0.0.2", 0.0) == 0
    assert made.connected("10.0.0.1", 12.0) == 0


def test_a_new_quota_counts_for_what_was_used_before() -> None:
    made = shares(producer_byte_rate=100)
    assert made.produced("u", "c", 100_000, 0.0) > 900_000
    made.limits = QuotaLimits({QuotaEntity(client_id=""): {"producer_byte_rate": 50_000.0}})
    assert made.produced("u", "c", 0, 0.0) == 0
    made.limits = QuotaLimits({})
    assert made.produced("u", "c", 10**9, 0.0) == 0


def test_usage_is_forgotten_after_an_hour_and_there_is_a_limit_to_it() -> None:
    made = ClientShares(WINDOW, WINDOW, most=100)
    made.limits = QuotaLimits({QuotaEntity(client_id=""): {"producer_byte_rate": 1.0}})
    for number in range(10_000):
        made.produced("u", f"client-{number}", 1, 0.0)
        assert len(made) <= 100
    assert made.produced("u", "client-9999", 100, 0.0) > 0, "those that came last are remembered"
    made.produced("u", "another", 1, IDLE_SECONDS + 1)
    assert len(made) == 1


def test_who_uses_much_is_remembered_though_others_come_and_go() -> None:
    made = ClientShares(WINDOW, WINDOW, most=100)
    made.limits = QuotaLimits({QuotaEntity(client_id=""): {"producer_byte_rate": 1.0}})
    made.produced("u", "greedy", 1000, 0.0)
    for number in range(1000):
        made.produced("u", f"client-{number}", 1, 1.0)
        assert made.produced("u", "greedy", 0, 1.0) > 900_000


def test_addresses_of_strangers_push_out_nobody_who_has_logged_in() -> None:
    made = ClientShares(WINDOW, WINDOW, most=100)
    limits: dict[QuotaEntity, dict[str, float]] = {QuotaEntity(user=""): {"producer_byte_rate": 1.0}}
    made.limits = QuotaLimits(limits | {QuotaEntity(ip=""): {"connection_creation_rate": 1.0}})
    assert made.produced("alice", "app", 1000, 0.0) > 0
    for number in range(1000):
        made.connected(f"10.0.{number // 256}.{number % 256}", 1.0)
    assert made.produced("alice", "app", 0, 1.0) > 0
    assert len(made) == 101


def test_client_ids_that_a_user_makes_up_push_out_only_its_own() -> None:
    made = ClientShares(WINDOW, WINDOW, most=100)
    limits: dict[QuotaEntity, dict[str, float]] = {QuotaEntity("", ""): {"producer_byte_rate": 1.0}}
    limits |= {QuotaEntity("carol"): {"producer_byte_rate": 1.0}, QuotaEntity("dora", "x"): {"consumer_byte_rate": 1.0}}
    made.limits = QuotaLimits(limits)
    for user in ("alice", "bob", "carol"):
        assert made.produced(user, "app", 1000, 0.0) > 0
    for number in range(1000):
        made.produced("mallory", f"made-up-{number}", 1000, 1.0)
    assert len(made) == 101, "a hundred of client ids of users, and one of a user"
    for user in ("alice", "bob", "carol"):
        assert made.produced(user, "app", 0, 1.0) > 0, user
    for number in range(60):
        made.produced("alice", f"app-{number}", 1000, 2.0)
    for number in range(30, 60):
        assert made.produced("alice", f"app-{number}", 0, 2.0) > 0, "each of three has the room for a third of all"


@given(
    st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 40), st.sampled_from([0.0, 1.0, 2000.0]))),
    st.integers(1, 12),
)
def test_usages_never_exceed_their_room_and_the_newest_is_kept(uses: list[tuple[str, int, float]], most: int) -> None:
    usages, now = Usages(most), 0.0
    for user, number, pause in uses:
        now += pause
        owner = UsageOwner("k", user, str(number))
        made = usages.of(owner, Rate, now)
        assert len(usages) == sum(map(len, usages._groups.values())) <= most
        assert usages.of(owner, Rate, now) is made
        assert all(usages._groups.values())


def test_long_names_cost_no_more_than_short_ones_and_stay_apart() -> None:
    made = shares(producer_byte_rate=1)
    long = "ü\ud800" * 16_000
    for number in range(20):
        assert made.produced("u" * 60_000, f"{long}{number}", 1000, 0.0) > 0
        assert made.produced("u" * 60_000, f"{long}{number}", 0, 0.0) > 0
    assert made.produced("u", shortened(f"{long}1"), 1, 0.0) == 0, "nobody has a name that stands for another's"
    assert len(made) == 21
    [remembered] = made._usages.values()
    assert all(len(owner.client_id or "") < LONGEST_NAME + 100 for owner in remembered._groups[None])
    assert len(made.limits._found) <= 1
    named = QuotaLimits({QuotaEntity("u" * 60_000, long): {"producer_byte_rate": 5.0}})
    found = named.find("producer_byte_rate", "u" * 60_000, long)
    assert found is not None
    assert found[1] == 5.0


def test_usages_take_two_and_a_half_kilobytes_each_at_most() -> None:
    import tracemalloc

    usages = Usages()
    tracemalloc.start()
    try:
        for number in range(MOST_REMEMBERED // 10):  # memory grows with their number, and tracing takes its time
            rate = usages.of(UsageOwner("producer_byte_rate", "user", f"client-{number}"), Rate, 0.0)
            for second in range(11):
                rate.record(1, float(second), WINDOW)
        assert tracemalloc.get_traced_memory()[0] < 25e6 / 10
    finally:
        tracemalloc.stop()


def test_only_those_whose_quota_is_another_one_are_concerned_by_a_change() -> None:
    base: dict[QuotaEntity, dict[str, float]] = {QuotaEntity(user=""): {"producer_byte_rate": 1.0}}
    base |= {QuotaEntity("alice", "app"): {"request_percentage": 5.0}}
    before, raised = QuotaLimits(base), QuotaLimits(base | {QuotaEntity("bob"): {"producer_byte_rate": 2.0}})
    assert raised.differs(before, "bob", "app")
    assert not raised.differs(before, "alice", "app")
    assert QuotaLimits({}).differs(before, "alice", "app")
    same = QuotaLimits(base | {QuotaEntity("bob"): {"producer_byte_rate": 1.0}})
    assert not same.differs(before, "bob", "app"), "who shares it, and how much it is, stay the same"


@pytest.mark.parametrize("strange", ["", "a/b", "<default>", "ü\n", "x" * 10_000])
def test_any_client_id_has_its_own_share(strange: str) -> None:
    made = shares(producer_byte_rate=1)
    assert made.produced("u", strange, 1000, 0.0) > 0
    assert made.produced("u", "plain", 1, 0.0) == 0
