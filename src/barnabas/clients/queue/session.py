"""The share session of a member with one leader, without I/O: epochs, partitions, acknowledgements.

A session lives at the leader, bound to a connection. Its epoch is 0 in the request that opens it and counts up with
each request; -1 closes it, and with it all locks that the member still has there. A request names only what changed:
partitions that came, those that went, and acknowledgements.

The leader gives records of every partition of the session, so one that is not wanted any more leaves it at once.
Acknowledgements are taken for others, too. They go in a request of their own: a fetch would bring the partition back.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple

from kio.schema.share_acknowledge.v2 import request as acknowledge
from kio.schema.share_fetch.v2 import request as fetch
from kio.schema.types import GroupId
from kio.static.primitive import i8, i32, i32Timedelta, i64

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from datetime import timedelta
    from uuid import UUID

    from barnabas.protocol.acknowledgements import Acknowledgement

OPENING: Final = 0
CLOSING: Final = -1
RECORD_LIMIT: Final = i8(1)
"""The mode in which a leader hands out no more records than it is asked for."""
MAX_EPOCH: Final = 2**31 - 1


class SharePartitionId(NamedTuple):
    """A partition as the protocol names it here."""

    topic_id: UUID
    partition: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchLimits:
    """How much one fetch may bring, and how long it may wait."""

    max_records: int
    max_wait: timedelta
    max_bytes: int


@dataclass(slots=True)
class LeaderSession:
    """Requests of one member to one leader."""

    group_id: str
    member_id: str
    epoch: int = OPENING
    _partitions: set[SharePartitionId] = field(default_factory=set)
    """What the leader knows to be in the session."""

    def reset(self) -> None:
        """The leader has no session of ours: the next request opens one, and all locks are gone."""
        self.epoch = OPENING
        self._partitions.clear()

    def fetch(
        self,
        wanted: Iterable[SharePartitionId],
        acknowledgements: Mapping[SharePartitionId, Mapping[int, Acknowledgement]],
        limits: FetchLimits,
        *,
        exact: bool,
    ) -> fetch.ShareFetchRequest:
        """A fetch from the `wanted` partitions, with acknowledgements of theirs.

        With `exact`, the leader hands out at most as many records as asked for, which older brokers cannot.
        """
        wanted = set(wanted)
        came = wanted - self._partitions
        went = self._partitions - wanted
        topics = {
            place: tuple(
                fetch.AcknowledgementBatch(
                    first_offset=i64(run.first), last_offset=i64(run.last), acknowledge_types=(i8(run.kind),)
                )
                for run in runs(acknowledgements.get(place, {}))
            )
            for place in sorted(came | acknowledgements.keys(), key=_by_bytes)
        }
        request = fetch.ShareFetchRequest(
            group_id=GroupId(self.group_id),
            member_id=self.member_id,
            share_session_epoch=i32(self.epoch),
            max_wait=i32Timedelta.parse(limits.max_wait),
            min_bytes=i32(1),
            max_bytes=i32(limits.max_bytes),
            max_records=i32(limits.max_records),
            batch_size=i32(limits.max_records),
            share_acquire_mode=RECORD_LIMIT if exact else i8(0),
            is_renew_ack=False,
            topics=tuple(
                fetch.FetchTopic(
                    topic_id=place.topic_id,
                    partitions=(
                        fetch.FetchPartition(partition_index=i32(place.partition), acknowledgement_batches=batches),
                    ),
                )
                for place, batches in topics.items()
            ),
            forgotten_topics_data=tuple(
                fetch.ForgottenTopic(topic_id=place.topic_id, partitions=(i32(place.partition),))
                for place in sorted(went, key=_by_bytes)
            ),
        )
        self._partitions = (self._partitions | came) - went
        self._count()
        return request

    def acknowledge(
        self,
        acknowledgements: Mapping[SharePartitionId, Mapping[int, Acknowledgement]],
        *,
        renewing: bool = False,
        closing: bool = False,
    ) -> acknowledge.ShareAcknowledgeRequest:
        """Acknowledgements alone; `renewing` if there are renewals among them, `closing` to end the session with it."""
        request = acknowledge.ShareAcknowledgeRequest(
            group_id=GroupId(self.group_id),
            member_id=self.member_id,
            share_session_epoch=i32(CLOSING if closing else self.epoch),
            is_renew_ack=renewing,
            topics=tuple(
                acknowledge.AcknowledgeTopic(
                    topic_id=place.topic_id,
                    partitions=(
                        acknowledge.AcknowledgePartition(
                            partition_index=i32(place.partition),
                            acknowledgement_batches=tuple(
                                acknowledge.AcknowledgementBatch(
                                    first_offset=i64(run.first),
                                    last_offset=i64(run.last),
                                    acknowledge_types=(i8(run.kind),),
                                )
                                for run in runs(offsets)
                            ),
                        ),
                    ),
                )
                for place, offsets in sorted(acknowledgements.items(), key=lambda item: _by_bytes(item[0]))
            ),
        )
        self._count()
        return request

    def _count(self) -> None:
        self.epoch = 1 if self.epoch == MAX_EPOCH else self.epoch + 1


class AcknowledgedRun(NamedTuple):
    """Offsets without a hole of which the same was said, both ends included."""

    first: int
    last: int
    kind: Acknowledgement


def runs(offsets: Mapping[int, Acknowledgement]) -> list[AcknowledgedRun]:
    """Acknowledgements as few runs, by offset."""
    found: list[AcknowledgedRun] = []
    for offset, kind in sorted(offsets.items()):
        if found and found[-1].last + 1 == offset and found[-1].kind is kind:
            found[-1] = found[-1]._replace(last=offset)
        else:
            found.append(AcknowledgedRun(offset, offset, kind))
    return found


def _by_bytes(place: SharePartitionId) -> tuple[bytes, int]:
    return place.topic_id.bytes, place.partition
