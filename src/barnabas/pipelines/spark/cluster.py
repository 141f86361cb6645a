"""What a cluster has to be read: partitions, the offsets at which they begin and end, and what groups committed.

All offsets of a question are asked for at once: the ends of a hundred partitions take 4 ms, one by one 80 ms, and Spark
asks before every batch. A broker that does not answer is asked again until `timeout` has passed, so that a stream lives
through the restart of a broker; somebody who waits at a terminal is told so. A name that nobody has is waited for too:
in a network of containers, a broker that is not up has none. One that does not let us in is not asked again, nor is
what is no address.
"""

from __future__ import annotations

import logging
import math
import time
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar

from barnabas.clients.admin.admin import DEFAULT_TIMEOUT, Admin
from barnabas.clients.errors import (
    AddressInvalid,
    AddressUnknown,
    BrokerSilent,
    BrokerUnreachable,
    InvalidClientConfig,
    LoginFailed,
    RequestRefused,
)
from barnabas.clients.wire.addresses import connect
from barnabas.model.errors import ErrorCode
from barnabas.model.ids import TopicPartition
from barnabas.model.internal_topics import INTERNAL_TOPICS
from barnabas.model.remedies import Remedy, RemedyKind
from barnabas.pipelines.errors import TopicMissing
from barnabas.pipelines.spark.client_properties import API_TIMEOUT

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from barnabas.pipelines.spark.read.offsets import Offsets
    from barnabas.pipelines.spark.read.selection import Selection

T = TypeVar("T")

TIMEOUT_SECONDS: Final = 60.0
"""Kafka's default of `default.api.timeout.ms`, in seconds."""
TELL_SECONDS: Final = 2.0
"""After how long people are told what is waited for."""
RETRY_SECONDS: Final = 0.2
PROBE_SECONDS: Final = 1.0
"""How long it is looked whether anybody is there who does not answer."""
COORDINATOR_IS_COMING: Final = frozenset(
    {ErrorCode.coordinator_load_in_progress, ErrorCode.coordinator_not_available, ErrorCode.not_coordinator}
)
"""Refusals of a cluster in which the group's coordinator is just starting, or moving."""
CLIENT_ONLY: Final = ("group.id", "isolation.level", API_TIMEOUT)
"""Properties of readers that other clients do not know, and the one that is for us alone (`without_api_timeout`)."""

log = logging.getLogger("barnabas.pipelines")


class ClusterView:
    """Questions to a cluster; `config` has Kafka's client properties, with `bootstrap.servers` among them."""

    def __init__(
        self, config: Mapping[str, object], *, timeout: float | None = None, name_timeout: float = math.inf
    ) -> None:
        """Connect. Raises BrokerUnreachable if nobody answered for `timeout` seconds, or as long as `config` says.

        With `name_timeout` it does so after that many seconds already if nobody has any of the names.
        """
        self._timeout = _timeout(config) if timeout is None else timeout
        self.committed_only = str(config.get("isolation.level", "")).strip().lower() != "read_uncommitted"
        """Whether ends are those of committed data: before the oldest open transaction."""
        found: dict[str, Any] = {name: value for name, value in config.items() if name not in CLIENT_ONLY}
        self._servers = servers = str(found.pop("bootstrap.servers"))
        per_request = min(DEFAULT_TIMEOUT, max(self._timeout, PROBE_SECONDS))
        self._admin = self._request(
            lambda: Admin(servers, timeout=per_request, config=found), name_timeout=name_timeout
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End; closing twice does nothing."""
        self._admin.close()

    def partitions(self, selection: Selection, *, only_present: bool = False) -> list[TopicPartition]:
        """The partitions that are to be read now, sorted.

        Raises TopicMissing, except for a pattern, or with `only_present`: then what is missing is left out.
        """
        pattern = selection.pattern
        if pattern is not None:
            return self._of_wanted(lambda name: name not in INTERNAL_TOPICS and pattern.fullmatch(name) is not None)
        if only_present:
            topics = set(selection.topics) or {partition.topic for partition in selection.assigned}
            found = self._of_wanted(topics.__contains__)
            return [each for each in found if not selection.assigned or each in selection.assigned]
        if selection.topics:
            return self._of_topics(selection.topics)
        there = set(self._of_topics(sorted({partition.topic for partition in selection.assigned})))
        for partition in selection.assigned:
            if partition not in there:
                raise TopicMissing(f"topic {partition.topic} has no partition {partition.partition}")
        return sorted(set(selection.assigned))

    def topic_ids(self, topics: Iterable[str]) -> dict[str, str]:
        """The id of each topic, which another topic of the same name will not have. Raises TopicMissing."""
        return {topic.name: topic.topic_id or "" for topic in self._describe(topics)}

    def earliest(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Where each partition begins. Raises TopicMissing."""
        return self._offsets(self._admin.beginning_offsets, list(partitions))

    def latest(self, partitions: Iterable[TopicPartition], *, open_too: bool = False) -> dict[TopicPartition, int]:
        """Where each partition ends, for readers of the isolation level that was given. Raises TopicMissing.

        With `open_too`, it is where open transactions end.
        """
        committed = self.committed_only and not open_too
        return self._offsets(partial(self._admin.end_offsets, committed=committed), list(partitions))

    def at(self, moments: Mapping[TopicPartition, int]) -> dict[TopicPartition, int | None]:
        """The first offset at or after a moment (milliseconds) of each partition; None where nothing is that young.

        Raises TopicMissing.
        """
        found: dict[TopicPartition, int | None] = {}
        for moment in sorted(set(moments.values())):
            wanted = [partition for partition, when in moments.items() if when == moment]
            found |= self._offsets(partial(self._admin.offsets_at, moment), wanted)
        return found

    def committed(self, group: str) -> dict[TopicPartition, int]:
        """What a group has committed; empty if there is no such group."""
        return self._request(lambda: self._admin.group_offsets(group))

    def commit(self, group: str, offsets: Offsets, *, timeout: float | None = None) -> None:
        """Commit for a group that has no members. Raises RequestRefused if it has some.

        `timeout` is for those who have better to do than to wait for the group's coordinator: no question to a broker
        takes longer either.
        """
        self._request(lambda: self._admin.commit_group_offsets(group, offsets, timeout=timeout), timeout)

    def _of_wanted(self, is_wanted: Callable[[str], bool]) -> list[TopicPartition]:
        """The partitions of the topics that are wanted; one that is deleted between the two questions has none."""
        deadline = time.monotonic() + self._timeout
        while True:
            names = self._request(self._admin.topic_names)
            try:
                return self._of_topics(filter(is_wanted, names))
            except TopicMissing:
                if time.monotonic() > deadline:
                    raise
            time.sleep(RETRY_SECONDS)

    def offsets_retention(self) -> timedelta | None:
        """For how long it keeps offsets of a group without members: the shortest time that a broker says, if any."""
        minutes = self._request(lambda: self._admin.broker_setting("offsets.retention.minutes"))
        return timedelta(minutes=min(map(int, minutes.values()))) if minutes else None

    def _of_topics(self, topics: Iterable[str]) -> list[TopicPartition]:
        return sorted(
            TopicPartition(topic.name, partition.partition)
            for topic in self._describe(topics)
            for partition in topic.partitions
        )

    def _describe(self, topics: Iterable[str]) -> list[Any]:
        names = list(topics)

        def gone() -> list[str]:
            there = set(self._request(self._admin.topic_names))
            return [name for name in names if name not in there]

        return self._of_known(lambda: self._admin.describe_topics(names), gone)

    def _offsets(self, ask: Callable[[list[TopicPartition]], T], wanted: list[TopicPartition]) -> T:
        def gone() -> list[str]:
            there = set(self._of_topics(sorted({partition.topic for partition in wanted})))
            return [str(partition) for partition in wanted if partition not in there]

        return self._of_known(lambda: ask(wanted), gone)

    def _of_known(self, ask: Callable[[], T], gone: Callable[[], list[str]]) -> T:
        """What is answered about topics. Those that are said to be unknown, and are there, are asked for again.

        librdkafka says so for a moment when a broker comes back.
        """
        deadline = time.monotonic() + self._timeout
        while True:
            try:
                return self._request(ask)
            except RequestRefused as error:
                if error.code != ErrorCode.unknown_topic_or_partition:
                    raise
                if names := gone():
                    raise missing(names) from error
                if time.monotonic() > deadline:
                    raise
            time.sleep(RETRY_SECONDS)

    def _request(self, ask: Callable[[], T], timeout: float | None = None, *, name_timeout: float = math.inf) -> T:
        timeout = self._timeout if timeout is None else timeout
        began, is_logged = time.monotonic(), False
        while True:
            try:
                return self._send(ask)
            except (BrokerUnreachable, RequestRefused) as error:
                waited = time.monotonic() - began
                most = min(timeout, name_timeout) if isinstance(error, AddressUnknown) else timeout
                if waited > most or not _passes(error):
                    raise
                if waited > TELL_SECONDS and not is_logged and isinstance(error, BrokerUnreachable):
                    log.warning("%s. The request is retried for up to %g s.", str(error).rstrip("."), most)
                    is_logged = True
            time.sleep(RETRY_SECONDS)

    def _send(self, ask: Callable[[], T]) -> T:
        """What is answered. A client that was connected once does not know that nobody is there now: so it is seen."""
        try:
            return ask()
        except BrokerSilent:
            connect(self._servers, PROBE_SECONDS).socket.close()
            raise


def _passes(error: BrokerUnreachable | RequestRefused) -> bool:
    """Whether the same question may be answered later."""
    if isinstance(error, RequestRefused):
        return error.code in COORDINATOR_IS_COMING
    return not isinstance(error, AddressInvalid | LoginFailed)


def _timeout(config: Mapping[str, object]) -> float:
    if API_TIMEOUT not in config:
        return TIMEOUT_SECONDS
    text = str(config[API_TIMEOUT]).strip()
    if not text.isdecimal():
        raise InvalidClientConfig(f"{API_TIMEOUT} is {text}, and not milliseconds")
    return int(text) / 1000


def missing(names: Iterable[str]) -> TopicMissing:
    """The error for topics or partitions that are not there."""
    wanted = ", ".join(names)
    return TopicMissing(f"there is no topic or partition {wanted}").with_remedy(Remedy(RemedyKind.LIST_TOPICS))
