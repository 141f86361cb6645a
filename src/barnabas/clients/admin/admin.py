"""Topics and their configuration, over the wire: a thin, typed layer over confluent-kafka's AdminClient.

It adds what a caller should not have to know of librdkafka: plain values instead of dictionaries of futures, one
deadline for everything, and two kinds of failure (see `clients/errors.py`) instead of twenty local codes. A dead
address is found by a plain connect before librdkafka is asked, because librdkafka goes on trying until the deadline
and then says only that it failed.
"""

from __future__ import annotations

import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Self, TypeVar

from barnabas.clients.admin.topics import ConfigValue, NewTopic, PartitionInfo, TopicInfo, topic_info
from barnabas.clients.closed import Closed, left_in_parent, watch_forks
from barnabas.clients.config import DEFAULT_BOOTSTRAP_SERVERS, open_client, properties
from barnabas.clients.errors import BrokerSilent, BrokerUnreachable, InvalidClientConfig, RequestRefused, error_code
from barnabas.clients.library import load, load_kafka
from barnabas.clients.limits import MOST_PARTITIONS, MOST_REPLICAS, within
from barnabas.clients.logins import LoginErrors
from barnabas.clients.records import as_milliseconds
from barnabas.clients.wire.addresses import connect
from barnabas.model.errors import ErrorCode
from barnabas.model.ids import TopicPartition
from barnabas.model.numbers import MAX_INT32, MAX_INT64
from barnabas.model.permissions import create_topic, on_cluster, on_topic

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from concurrent.futures import Future
    from datetime import datetime

    from confluent_kafka import KafkaError

    from barnabas.clients.admin.groups import Groups
    from barnabas.model.permissions import Action

_Answer = TypeVar("_Answer")

DEFAULT_TIMEOUT = 10.0
CONNECT_TIMEOUT = 3.0
METADATA_TIMEOUT = 5.0
RETRY_SECONDS = 0.05
LOOK_AROUND_SECONDS = 1.0
"""How often the cluster is asked who its controller is, while an answer is waited for."""
LEADER_IS_ELSEWHERE = frozenset(
    {
        ErrorCode.not_leader_or_follower,
        ErrorCode.leader_not_available,
        ErrorCode.fenced_leader_epoch,
        ErrorCode.unknown_leader_epoch,
    }
)
"""Answers after which the same question is asked of another leader."""
BROKER_DEFAULT = -1
"""As a number of partitions or replicas of a new topic, Kafka's word for what the broker is set to."""


class Admin:
    """A connection to a cluster for administrative work. Use it as a context manager."""

    def __init__(
        self,
        bootstrap_servers: str = DEFAULT_BOOTSTRAP_SERVERS,
        *,
        timeout: float = DEFAULT_TIMEOUT,
        config: Mapping[str, Any] | None = None,
        **kafka_properties: Any,
    ) -> None:
        """Connect. `timeout` (seconds) holds for each call, `config` and further keywords are Kafka's properties.

        Raises LibraryMissing without confluent-kafka, InvalidClientConfig for properties it does not take, and
        BrokerUnreachable when no address takes a connection.
        """
        if not timeout > 0:
            raise InvalidClientConfig(f"timeout is {timeout}: it has to be more than 0 seconds")
        self._bootstrap_servers = bootstrap_servers
        self._timeout = timeout
        load("confluent_kafka.admin", "clients")
        self._kafka = load_kafka()
        found = properties(bootstrap_servers, config, kafka_properties, {})
        self._properties = {
            name: str(value).lower() if isinstance(value, bool) else value if callable(value) else str(value)
            for name, value in found.items()
        }
        self._logins = LoginErrors()
        own = {"log_level": 0, "logger": None, "error_cb": self._logins}
        self._client = open_client(self._kafka.admin, "AdminClient", {**own, **found})
        connect(bootstrap_servers, min(timeout, CONNECT_TIMEOUT)).socket.close()
        watch_forks(self)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def close(self) -> None:
        """End; closing twice does nothing."""
        self._client = Closed("the admin client")

    def forked(self) -> None:
        """In a child of this process: the connection is the parent's."""
        self._client = left_in_parent("the admin client", self._client)

    def topic_names(self) -> list[str]:
        """All topics, internal ones too, sorted."""
        return sorted(self._metadata().topics)

    def topics(self) -> list[TopicInfo]:
        """All topics with their partitions, sorted by name; their ids are left out (`describe_topics` has them)."""
        return [
            TopicInfo(
                name=name,
                topic_id=None,
                partitions=tuple(
                    PartitionInfo(
                        partition=number,
                        leader=None if found.leader < 0 else found.leader,
                        replicas=tuple(found.replicas),
                        isr=tuple(found.isrs),
                    )
                    for number, found in sorted(topic.partitions.items())
                ),
            )
            for name, topic in sorted(self._metadata().topics.items())
        ]

    def live_brokers(self) -> frozenset[int]:
        """Ids of the brokers that are up."""
        return frozenset(self._metadata().brokers)

    def describe_topics(self, names: str | Iterable[str]) -> list[TopicInfo]:
        """The named topics, in the order of the names."""
        wanted = [names] if isinstance(names, str) else list(names)
        if not wanted:
            return []

        def ask(timeout: float) -> list[TopicInfo]:
            futures = self._client.describe_topics(self._kafka.TopicCollection(wanted), request_timeout=timeout)
            return [
                topic_info(self._result(futures[name], f"topic {name}", on_topic("describe", "Describe", name)))
                for name in wanted
            ]

        return self._answer_to(ask)

    def topic_configs(self, names: Iterable[str]) -> dict[str, list[ConfigValue]]:
        """Every setting of each topic, in the order in which the broker tells them."""
        return self._configs(self._kafka.admin.ResourceType.TOPIC, names)

    def broker_setting(self, name: str) -> dict[int, str]:
        """What a setting is at each broker that is up; brokers that do not know it are left out."""
        found = self._configs(self._kafka.admin.ResourceType.BROKER, map(str, sorted(self.live_brokers())))
        return {
            int(broker): setting.value
            for broker, settings in found.items()
            for setting in settings
            if setting.name == name and setting.value is not None
        }

    def _configs(self, kind: Any, names: Iterable[str]) -> dict[str, list[ConfigValue]]:
        admin = self._kafka.admin
        resources = [admin.ConfigResource(kind, name) for name in names]
        if not resources:
            return {}

        def ask(timeout: float) -> dict[str, list[ConfigValue]]:
            futures = self._client.describe_configs(resources, request_timeout=timeout)
            return {
                resource.name: [
                    ConfigValue(
                        name=entry.name,
                        value=entry.value,
                        default=entry.source == admin.ConfigSource.DEFAULT_CONFIG.value,
                    )
                    for entry in self._result(future, action=self._description_of(resource)).values()
                ]
                for resource, future in futures.items()
            }

        return self._answer_to(ask)

    def _description_of(self, resource: Any) -> Action:
        """What it takes to be told the settings of a topic or a broker."""
        words, operation = "describe the configs of", "DescribeConfigs"
        if resource.restype == self._kafka.admin.ResourceType.TOPIC:
            return on_topic(words, operation, resource.name)
        return on_cluster(f"{words} broker {resource.name}", operation)

    def create_topic(
        self,
        topic: NewTopic | str,
        partitions: int | None = None,
        replication_factor: int | None = None,
        *,
        configs: Mapping[str, str] | None = None,
        exist_ok: bool = False,
    ) -> None:
        """Make a topic, given by its name and what it should have, or as a NewTopic; returns when the cluster has it.

        Without a number of partitions or replicas the broker's defaults hold. With `exist_ok` a topic that is there
        already is left as it is.
        """
        if isinstance(topic, str):
            topic = NewTopic(
                name=topic, partitions=partitions, replication_factor=replication_factor, configs=configs or {}
            )
        try:
            self._create(topic)
        except RequestRefused as error:
            if error.code != ErrorCode.topic_already_exists or not exist_ok:
                raise

    def _create(self, topic: NewTopic) -> None:
        kwargs: dict[str, Any] = {"config": dict(topic.configs)}
        if topic.assignment:
            kwargs["replica_assignment"] = [list(replicas) for replicas in topic.assignment]
            kwargs["num_partitions"] = len(topic.assignment)
        else:
            kwargs["num_partitions"] = _count_or_default("partitions", topic.name, topic.partitions, MOST_PARTITIONS)
            kwargs["replication_factor"] = _count_or_default(
                "replicas", topic.name, topic.replication_factor, MOST_REPLICAS
            )
        futures = self._client.create_topics([self._kafka.admin.NewTopic(topic.name, **kwargs)], **self._deadlines())
        self._result(futures[topic.name], f"topic {topic.name}", create_topic(topic.name))

    def create_partitions(self, topic: str, total: int, assignment: Sequence[Sequence[int]] = ()) -> None:
        """Grow a topic to `total` partitions; `assignment` names the replicas of each new one."""
        kwargs: dict[str, Any] = {}
        if assignment:
            kwargs["replica_assignment"] = [list(replicas) for replicas in assignment]
        wanted = self._kafka.admin.NewPartitions(topic, _count("partitions", topic, total, MOST_PARTITIONS), **kwargs)
        futures = self._client.create_partitions([wanted], **self._deadlines())
        self._result(futures[topic], f"topic {topic}", on_topic("add partitions to", "Alter", topic))

    def alter_topic_config(self, topic: str, *, set_: Mapping[str, str], delete: Iterable[str] = ()) -> None:
        """Set some of a topic's settings and return others to their default; the rest stays."""
        admin = self._kafka.admin
        changes = [
            *(admin.ConfigEntry(k, v, incremental_operation=admin.AlterConfigOpType.SET) for k, v in set_.items()),
            *(admin.ConfigEntry(k, None, incremental_operation=admin.AlterConfigOpType.DELETE) for k in delete),
        ]
        resource = admin.ConfigResource(admin.ResourceType.TOPIC, topic, incremental_configs=changes)
        futures = self._client.incremental_alter_configs([resource], request_timeout=self._timeout)
        self._result(futures[resource], action=on_topic("change the configs of", "AlterConfigs", topic))

    def delete_topics(self, names: str | Iterable[str]) -> None:
        """Delete topics and all they hold; returns when the cluster no longer shows them."""
        wanted = [names] if isinstance(names, str) else list(names)
        if not wanted:
            return
        futures = self._client.delete_topics(wanted, **self._deadlines())
        for name in wanted:
            self._result(futures[name], f"topic {name}", on_topic("delete", "Delete", name))

    def partitions(self, topic: str) -> list[TopicPartition]:
        """All partitions of a topic. Raises RequestRefused if there is no such topic."""
        (found,) = self.describe_topics(topic)
        return [TopicPartition(topic, info.partition) for info in found.partitions]

    def beginning_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The first offset of each partition."""
        return self._offsets(partitions, self._kafka.admin.OffsetSpec.earliest())

    def end_offsets(
        self, partitions: Iterable[TopicPartition], *, committed: bool = False
    ) -> dict[TopicPartition, int]:
        """The offset after the last record of each partition; `committed`: before the oldest open transaction."""
        return self._offsets(partitions, self._kafka.admin.OffsetSpec.latest(), committed=committed)

    def offsets_at(
        self, when: datetime | int, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, int | None]:
        """The first offset at or after a moment (a datetime, or milliseconds); None where nothing is that young."""
        moment = within("milliseconds since 1970", as_milliseconds(when), 0, MAX_INT64)
        spec = self._kafka.admin.OffsetSpec.for_timestamp(moment)
        return {
            partition: offset if offset >= 0 else None for partition, offset in self._offsets(partitions, spec).items()
        }

    def delete_records(self, before: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Delete what lies before these offsets (-1: everything); returns where each partition begins now."""
        wanted = self._places(before, least=-1)
        if not wanted:
            return {}

        def ask(_timeout: float) -> dict[TopicPartition, int]:
            futures = self._client.delete_records(wanted, **self._deadlines())
            found = self._of_partitions(futures, "delete records of", "Delete")
            return {partition: deleted.low_watermark for partition, deleted in found.items()}

        return self._answer_to(ask, changes=True)

    def group_offsets(self, group: str) -> dict[TopicPartition, int]:
        """What a group has committed; empty if there is no such group."""
        name = _group(group)
        with self._groups() as groups:
            found = groups.committed([name])[name]
        return {partition: committed.offset for partition, committed in found.items()}

    def commit_group_offsets(
        self, group: str, offsets: Mapping[TopicPartition, int], *, timeout: float | None = None
    ) -> None:
        """Commit offsets for a group that has no members. Raises RequestRefused if it has some.

        `timeout` (seconds) takes the place of the one that the client was given.
        """
        if not offsets:
            return
        name = _group(group)
        self._places(offsets, least=0)
        with self._groups(timeout) as groups:
            groups.commit(name, offsets)

    def _groups(self, timeout: float | None = None) -> Groups:
        """Groups, without librdkafka: it aborts the process when a coordinator goes away while it is asked (#5397)."""
        from barnabas.clients.admin.groups import Groups
        from barnabas.clients.wire.connection import WireClient

        return Groups(
            WireClient(self._bootstrap_servers, properties=self._properties, timeout=timeout or self._timeout)
        )

    def _offsets(
        self, partitions: Iterable[TopicPartition], spec: Any, *, committed: bool = False
    ) -> dict[TopicPartition, int]:
        wanted = dict.fromkeys(self._places(dict.fromkeys(partitions, 0), least=0), spec)
        if not wanted:
            return {}
        level = self._kafka.IsolationLevel
        isolation = level.READ_COMMITTED if committed else level.READ_UNCOMMITTED

        def ask(timeout: float) -> dict[TopicPartition, int]:
            futures = self._client.list_offsets(wanted, isolation_level=isolation, request_timeout=timeout)
            found = self._of_partitions(futures, "see the offsets of", "Describe")
            return {partition: listed.offset for partition, listed in found.items()}

        return self._answer_to(ask)

    def _places(self, offsets: Mapping[TopicPartition, int], *, least: int) -> list[Any]:
        """Partitions with offsets, as librdkafka has them; no offset may be below `least`."""
        return [
            self._kafka.TopicPartition(
                topic,
                within(f"partition of {topic}", partition, 0, MAX_INT32),
                within(f"offset of {topic}-{partition}", offset, least, MAX_INT64),
            )
            for (topic, partition), offset in offsets.items()
        ]

    def _of_partitions(
        self, futures: Mapping[Any, Future[Any]], verb: str, operation: str
    ) -> dict[TopicPartition, Any]:
        return {
            TopicPartition(p.topic, p.partition): self._result(
                f, f"partition {p.topic}-{p.partition}", on_topic(verb, operation, p.topic)
            )
            for p, f in futures.items()
        }

    def _answer_to(self, ask: Callable[[float], _Answer], *, changes: bool = False) -> _Answer:
        """What brokers answer; they are asked again while leaders change, or connections break.

        What `changes` something may have been done by a broker whose connection broke: it is asked for no more.
        """
        deadline = time.monotonic() + self._timeout
        while True:
            try:
                return ask(max(deadline - time.monotonic(), RETRY_SECONDS))
            except RequestRefused as error:
                if error.code not in LEADER_IS_ELSEWHERE or time.monotonic() > deadline:
                    raise
            except BrokerSilent:
                if changes or time.monotonic() > deadline:
                    raise
            time.sleep(RETRY_SECONDS)

    def _deadlines(self) -> dict[str, float]:
        """The broker gets a little less time than we wait, so that its own answer arrives first."""
        return {"operation_timeout": self._timeout * 0.8, "request_timeout": self._timeout}

    def _metadata(self) -> Any:
        timeout = min(self._timeout, METADATA_TIMEOUT)
        asked_at = time.monotonic()
        try:
            return self._answered(self._client.list_topics(timeout=timeout))
        except self._kafka.KafkaException as error:
            raise self._translated(error.args[0], asked_at, timeout) from error

    def _result(self, future: Future[Any], what: str = "", action: Action | None = None) -> Any:
        """What a broker answered; `what` was asked about, and which `action`, is named here, for brokers do not."""
        asked_at = time.monotonic()
        try:
            return self._answered(self._wait_for(future))
        except self._kafka.KafkaException as error:
            raise self._translated(error.args[0], asked_at, self._timeout, what, action) from error
        except TimeoutError as error:
            raise self._silence(self._timeout) from error

    def _wait_for(self, future: Future[Any]) -> Any:
        """Its result. Who the controller is now is asked meanwhile: librdkafka goes on calling one that is gone.

        A thread asks, since the result may come before that answer.
        """
        deadline = time.monotonic() + self._timeout + 1
        client = self._client

        def look_around() -> None:
            with suppress(self._kafka.KafkaException):
                client.list_topics(timeout=LOOK_AROUND_SECONDS)

        while (left := deadline - time.monotonic()) > LOOK_AROUND_SECONDS:
            with suppress(TimeoutError):
                return future.result(LOOK_AROUND_SECONDS)
            threading.Thread(target=look_around, name="barnabas admin: controller", daemon=True).start()
        return future.result(max(left, 0.0))

    def _translated(
        self, error: KafkaError, asked_at: float, timeout: float, what: str = "", action: Action | None = None
    ) -> Exception:
        if what and error.code() == error.UNKNOWN_TOPIC_OR_PART:
            return RequestRefused(ErrorCode.unknown_topic_or_partition, f"there is no {what}")
        if error.code() >= 0:
            return RequestRefused(error_code(error.code()), error.str() or error.name(), action)
        if error.code() in (error._NOENT, error._UNKNOWN_TOPIC, error._UNKNOWN_PARTITION):
            return RequestRefused(
                ErrorCode.unknown_topic_or_partition, f"there is no {what or 'such topic or partition'}"
            )
        if error.code() == error._TRANSPORT and (what or time.monotonic() - asked_at < timeout / 2):
            self._client.poll(0)
            answer = f"the answer about {what}" if what else "the answer"
            return self._logins.failure or BrokerSilent(
                f"{self._bootstrap_servers}: the connection broke before {answer} came"
            )
        if error.code() in (error._TRANSPORT, error._TIMED_OUT, error._ALL_BROKERS_DOWN):
            return self._silence(timeout)
        return BrokerUnreachable(f"{self._bootstrap_servers}: {error.str()}")

    def _answered(self, answer: Any) -> Any:
        """The answer; whatever went wrong with connections before is over."""
        self._client.poll(0)
        self._logins.forget()
        return answer

    def _silence(self, timeout: float) -> BrokerUnreachable:
        self._client.poll(0)
        return self._logins.failure or BrokerSilent(
            f"{self._bootstrap_servers} takes connections but gave no answer within {timeout:g} s"
        )


def _count_or_default(what: str, topic: str, number: int | None, most: int) -> int:
    """How many of them are wanted; None leaves it to the broker, as does Kafka's own word for that."""
    return BROKER_DEFAULT if number is None or number == BROKER_DEFAULT else _count(what, topic, number, most)


def _count(what: str, topic: str, number: int, most: int) -> int:
    return within(f"{what} of {topic}", number, 1, most)


def _group(group: str) -> str:
    if not group:
        raise InvalidClientConfig("the name of a group is empty")
    return group
