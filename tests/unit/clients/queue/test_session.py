"""Share sessions: what requests name, and how epochs count."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING
from uuid import UUID

import pytest

from barnabas.clients.queue.session import (
    MAX_EPOCH,
    AcknowledgedRun,
    FetchLimits,
    LeaderSession,
    SharePartitionId,
    runs,
)
from barnabas.protocol.acknowledgements import Acknowledgement

if TYPE_CHECKING:
    from kio.schema.share_fetch.v2.request import ShareFetchRequest

ORDERS = UUID(int=7)
FIRST, SECOND = SharePartitionId(ORDERS, 0), SharePartitionId(ORDERS, 1)
LIMITS = FetchLimits(max_records=10, max_wait=timedelta(milliseconds=250), max_bytes=1 << 20)
ACCEPT, RELEASE = Acknowledgement.ACCEPT, Acknowledgement.RELEASE


@pytest.fixture
def session() -> LeaderSession:
    return LeaderSession("workers", "me")


def named(request: ShareFetchRequest) -> list[tuple[int, list[tuple[int, int, int]]]]:
    """Partitions of a request, with their acknowledgements."""
    return [
        (
            part.partition_index,
            [
                (int(one.first_offset), int(one.last_offset), int(one.acknowledge_types[0]))
                for one in part.acknowledgement_batches
            ],
        )
        for topic in request.topics
        for part in topic.partitions
    ]


def test_the_first_request_opens_the_session_and_names_all_partitions(session: LeaderSession) -> None:
    request = session.fetch([FIRST, SECOND], {}, LIMITS, exact=True)
    assert request.share_session_epoch == 0
    assert named(request) == [(0, []), (1, [])]
    assert request.share_acquire_mode == 1


def test_later_requests_name_what_changed_only(session: LeaderSession) -> None:
    session.fetch([FIRST], {}, LIMITS, exact=True)
    assert named(session.fetch([FIRST], {}, LIMITS, exact=True)) == []
    request = session.fetch([SECOND], {}, LIMITS, exact=True)
    assert request.share_session_epoch == 2
    assert named(request) == [(1, [])]
    assert [(topic.topic_id, topic.partitions) for topic in request.forgotten_topics_data] == [(ORDERS, (0,))]


def test_a_partition_that_is_not_wanted_leaves_at_once(session: LeaderSession) -> None:
    """Its records would be locked for nobody; acknowledgements for it go alone."""
    session.fetch([FIRST, SECOND], {}, LIMITS, exact=True)
    request = session.fetch([SECOND], {}, LIMITS, exact=True)
    assert [(topic.topic_id, topic.partitions) for topic in request.forgotten_topics_data] == [(ORDERS, (0,))]
    session.acknowledge({FIRST: {4: ACCEPT}})
    assert not session.fetch([SECOND], {}, LIMITS, exact=True).forgotten_topics_data


def test_after_a_reset_everything_is_named_again(session: LeaderSession) -> None:
    session.fetch([FIRST], {}, LIMITS, exact=False)
    session.reset()
    request = session.fetch([FIRST], {}, LIMITS, exact=False)
    assert (request.share_session_epoch, named(request), request.share_acquire_mode) == (0, [(0, [])], 0)


def test_epochs_go_on_with_one_after_the_highest(session: LeaderSession) -> None:
    session.epoch = MAX_EPOCH
    session.acknowledge({FIRST: {1: ACCEPT}})
    assert session.epoch == 1


def test_the_last_request_closes_the_session(session: LeaderSession) -> None:
    session.fetch([FIRST], {}, LIMITS, exact=True)
    request = session.acknowledge({FIRST: {1: ACCEPT, 2: ACCEPT, 3: RELEASE}}, closing=True)
    assert request.share_session_epoch == -1
    [batches] = [part.acknowledgement_batches for topic in request.topics for part in topic.partitions]
    assert [(one.first_offset, one.last_offset, one.acknowledge_types) for one in batches] == [
        (1, 2, (1,)),
        (3, 3, (2,)),
    ]


def test_runs_end_at_holes_and_at_other_words() -> None:
    said = {5: ACCEPT, 3: ACCEPT, 4: ACCEPT, 7: ACCEPT, 8: RELEASE}
    assert runs(said) == [AcknowledgedRun(3, 5, ACCEPT), AcknowledgedRun(7, 7, ACCEPT), AcknowledgedRun(8, 8, RELEASE)]
    assert runs({}) == []
