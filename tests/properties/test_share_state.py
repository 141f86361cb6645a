"""State batches laid over each other, and share coordinators that are loaded again, against plain models."""

from __future__ import annotations

from itertools import islice, pairwise

from hypothesis import given
from hypothesis import strategies as st

from barnabas.machines.shares.settings import ShareCoordinatorSettings
from barnabas.machines.shares.state_batches import combine
from barnabas.protocol.coordinator_records.share_state import StateBatch
from tests.support.share_state import KEY, Coordinator

OFFSETS = st.integers(0, 30)
BATCHES = st.lists(
    st.builds(
        lambda first, length, state, count: StateBatch(first, first + length, state, count),
        OFFSETS,
        st.integers(0, 8),
        st.sampled_from([0, 2, 3, 4]),
        st.integers(1, 5),
    ),
    max_size=8,
)


def by_offset(batches: list[StateBatch]) -> dict[int, tuple[int, int]]:
    """The plain model: what counts for each offset."""
    found: dict[int, tuple[int, int]] = {}
    for first, last, state, count in batches:
        for offset in range(first, last + 1):
            found[offset] = max(found.get(offset, (0, 0)), (count, state))
    return found


@given(old=BATCHES, new=BATCHES, start=st.integers(-1, 30))
def test_batches_that_are_combined_say_of_each_offset_what_the_later_one_says(
    old: list[StateBatch], new: list[StateBatch], start: int
) -> None:
    combined = combine(combine((), old), new, start)
    wanted = {offset: value for offset, value in by_offset(old + new).items() if offset >= start}
    assert by_offset(combined) == wanted
    for before, after in pairwise(combined):
        assert before.last_offset < after.first_offset
        assert before[2:] != after[2:] or before.last_offset + 1 < after.first_offset, "two runs that should be one"


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("initialize"), st.integers(0, 3), st.integers(-1, 9)),
        st.tuples(st.just("write"), BATCHES, st.integers(-1, 20), st.integers(-1, 3), st.integers(-1, 3)),
        st.tuples(st.just("read"), st.integers(-1, 4)),
        st.tuples(st.just("delete")),
        st.tuples(st.just("later")),
    ),
    max_size=25,
)


@given(steps=STEPS, updates=st.integers(0, 4))
def test_a_coordinator_that_is_loaded_again_is_in_the_state_of_the_one_that_decided(
    steps: list[tuple[object, ...]], updates: int
) -> None:
    settings = ShareCoordinatorSettings(updates_per_snapshot=updates, cold_snapshot_interval_ms=10)
    coordinator = Coordinator(settings)
    for kind, *values in steps:
        match kind, values:
            case "initialize", [int(epoch), int(start)]:
                coordinator.initialize(epoch, start)
            case "write", [list(batches), int(start), int(state_epoch), int(leader_epoch)]:
                coordinator.write(batches, start=start, state_epoch=state_epoch, leader_epoch=leader_epoch)
            case "read", [int(epoch)]:
                coordinator.read(epoch)
            case "delete", []:
                coordinator.delete()
            case _:
                coordinator.now_ms += 10
                coordinator.expire("cold snapshots")
    again = coordinator.reloaded()
    assert again.states == coordinator.machine.states
    before, coordinator.machine = coordinator.machine, again
    fenced = coordinator.write(leader_epoch=0, state_epoch=0, key=KEY)
    coordinator.machine = before
    assert type(coordinator.write(leader_epoch=0, state_epoch=0, key=KEY)) is type(fenced)


@given(
    order=st.permutations(range(12)),
    together=st.lists(st.integers(1, 4), min_size=12, max_size=12),
    late=st.lists(st.tuples(st.integers(0, 11), st.integers(0, 11)), max_size=12),
    updates=st.integers(0, 4),
)
def test_writes_and_initializations_that_arrive_once_more_and_late_change_nothing(
    order: list[int], together: list[int], late: list[tuple[int, int]], updates: int
) -> None:
    """As when a connection is cut off, and delivers later what was sent again over another one."""
    coordinator, punctual = (Coordinator(ShareCoordinatorSettings(updates_per_snapshot=updates)) for _ in range(2))
    for each in (coordinator, punctual):
        each.initialize(1, -1)
    sent: list[tuple[list[tuple[int, int, int, int]], int]] = []
    done: set[int] = set()
    left = iter(order)
    for count in together:
        offsets = list(islice(left, count))
        start = next(offset for offset in range(13) if offset not in done)
        sent.append(([(offset, offset, 2, 1) for offset in offsets], start))
        done.update(offsets)
        for each in (coordinator, punctual):
            each.write(sent[-1][0], start=start, state_epoch=1)
        for when, which in late:
            if when == len(sent) - 1 and which < len(sent):
                again, before = sent[which]
                coordinator.write(again, start=before, state_epoch=1)
                coordinator.initialize(1, -1)
    late_state, state = coordinator.read(), punctual.read()
    assert (late_state.start_offset, late_state.batches) == (state.start_offset, state.batches)
    assert coordinator.reloaded().states == coordinator.machine.states
