"""The state of a queue (share group): what becomes of messages behind its start offsets, and of those it gives up.

The share coordinator tells what is stored, to those who may act for the cluster. Which messages a member holds now is
stored nowhere: to others they are not delivered yet, or wait for another try.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from barnabas.clients.admin.configs import EntityType
from barnabas.clients.errors import RequestRefused
from barnabas.model.errors import ErrorCode
from barnabas.model.ids import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from barnabas.clients.admin.cluster_admin import ClusterAdmin
    from barnabas.clients.admin.share_groups import InFlight
    from barnabas.console.cluster.snapshot import ClusterSnapshot, Disks

MOST_RUNS: Final = 100
"""Of the messages of a partition that are told one by one."""
LETTERS_TOPIC: Final = "errors.deadletterqueue.topic.name"
LETTERS_COPY: Final = "errors.deadletterqueue.copy.record.enable"
_COUNTED: Final = {
    "Available": "available",
    "Acknowledged": "acknowledged",
    "Archiving": "archiving",
    "Archived": "archived",
}


class QueueState(NamedTuple):
    """What is stored of a queue; of what the cluster does not tell this user, why."""

    flying: Mapping[TopicPartition, Sequence[InFlight]]
    refusal: str | None
    letters: str | None
    """The topic of its dead letters, if it has one and its settings may be seen."""
    copies: bool
    is_forbidden: bool = False
    """Whether it is refused because the user may not act for the cluster, whichever queue it is."""
    is_silent: bool = False
    """Whether those who keep the state do not answer."""

    @classmethod
    def silent(cls, reason: str) -> QueueState:
        """Of a queue whose state nobody tells now."""
        told = f"Not all brokers that keep the state of the queue answer: {reason}."
        return cls({}, told, None, False, is_silent=True)

    def document(
        self, starts: Mapping[TopicPartition, int], snapshot: ClusterSnapshot, disks: Disks
    ) -> dict[str, object]:
        """As the page gets it, in four fields.

        in_flight      null where it may not be seen; else for each partition that was begun {topic, partition, start,
                       available, acknowledged, archiving, archived, deliveries, runs}. The four counts are of messages
                       from `start` on: back for another try; done, before others that are not; given up, and their dead
                       letter is not stored yet; given up. `deliveries` is how often the one that is not done was
                       delivered that was delivered most often. `runs` has at most 100 {first, last, state, deliveries},
                       the oldest first, where `state` is Available, Acknowledged, Archiving or Archived.
        in_flight_refusal  null, or why in_flight is: it takes ClusterAction on the cluster, and brokers that answer
        in_flight_silent   whether it is because of brokers that do not answer
        dead_letters   null without a topic for them, else {topic, copies, records}: whether they have the whole record,
                       and how many records the topic has, of whatever queue; null if that is not known
        """
        rows = [_row(place, starts[place], runs) for place, runs in sorted(self.flying.items()) if place in starts]
        return {
            "in_flight": None if self.refusal is not None else rows,
            "in_flight_refusal": self.refusal,
            "in_flight_silent": self.is_silent,
            "dead_letters": None
            if not self.letters
            else {
                "topic": self.letters,
                "copies": self.copies,
                "records": _records(self.letters, snapshot, disks),
            },
        }


NO_QUEUE: Final[dict[str, object]] = {
    "in_flight": None,
    "in_flight_refusal": None,
    "in_flight_silent": False,
    "dead_letters": None,
}
"""The same fields of any other group."""


def describe_queue(cluster: ClusterAdmin, group_id: str, refusal: str | None = None) -> QueueState:
    """Ask for the state of a queue, but for what was refused before; raises BrokerUnreachable."""
    flying: dict[TopicPartition, list[InFlight]] = {}
    is_forbidden = refusal is not None
    try:
        if refusal is None:
            flying = cluster.share_groups.in_flight(group_id)
    except RequestRefused as error:
        refusal, is_forbidden = str(error), error.code is ErrorCode.cluster_authorization_failed
    try:
        settings = {each.name: each.value for each in cluster.configs.describe(EntityType.GROUPS, [group_id])[group_id]}
    except RequestRefused:
        settings = {}
    return QueueState(flying, refusal, settings.get(LETTERS_TOPIC), settings.get(LETTERS_COPY) == "true", is_forbidden)


def _row(place: TopicPartition, start: int, runs: Sequence[InFlight]) -> dict[str, Any]:
    counts = dict.fromkeys(_COUNTED.values(), 0)
    for run in runs:
        if run.state in _COUNTED:
            counts[_COUNTED[run.state]] += run.last - max(run.first, start) + 1
    tried = [run.deliveries for run in runs if run.state == "Available"]
    return {
        "topic": place.topic,
        "partition": place.partition,
        "start": start,
        **counts,
        "deliveries": max(tried, default=0),
        "runs": [
            {"first": max(run.first, start), "last": run.last, "state": run.state, "deliveries": run.deliveries}
            for run in sorted(runs, key=lambda run: run.first)[:MOST_RUNS]
        ],
    }


def _records(topic: str, snapshot: ClusterSnapshot, disks: Disks) -> int | None:
    """How many records a topic has; None where it is not there, not seen, or a leader did not answer."""
    found = snapshot.topics.get(topic)
    places = [] if found is None else [TopicPartition(topic, each.number) for each in found.partitions]
    if not places or not all(place in snapshot.ends and place in disks.starts for place in places):
        return None
    return sum(max(0, snapshot.ends[place] - disks.starts[place]) for place in places)
