"""The high watermark of a leader, after any series of appends, fetches and changes of the ISR."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from barnabas.machines.partition import PartitionLeader


@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("append"), st.integers(1, 5)),
            st.tuples(st.sampled_from([2, 3]), st.integers(0, 60)),
            st.tuples(st.just("propose"), st.sets(st.sampled_from([2, 3]))),
            st.tuples(st.just("commit"), st.sets(st.sampled_from([2, 3]))),
        ),
        max_size=40,
    )
)
def test_everyone_in_the_maximal_isr_has_what_is_newly_committed(events: list[tuple[object, object]]) -> None:
    everyone = (1, 2, 3)
    partition = PartitionLeader(
        broker_id=1, leader_epoch=5, replicas=everyone, isr=everyone, log_end_offset=0, high_watermark=0
    )
    ends = {1: 0, 2: -1, 3: -1}
    for what, value in events:
        before = partition.high_watermark
        match what, value:
            case "append", int(more):
                ends[1] += more
                moved = partition.appended(ends[1])
            case int(replica), int(end):
                ends[replica] = min(end, ends[1])
                moved = partition.fetched(replica, ends[replica])
            case "propose", set(others):
                partition.propose({1, *others})
                moved = False
            case "commit", set(others):
                moved = partition.commit_isr({1, *others}, partition.partition_epoch + 1)
            case _:
                raise AssertionError(what)
        assert moved == (partition.high_watermark > before)
        lowest = min(ends[replica] for replica in partition.maximal_isr)
        assert partition.high_watermark == max(before, lowest if what != "propose" else before)
