"""Topics and their configuration, over the wire: a thin, typed layer over confluent-kafka's AdminClient.

It adds what a caller should not have to know of librdkafka: plain values instead of dictionaries of futures, one
deadline for everything, and two kinds of failure (see `clients/errors.py`) instead of twenty local codes. A dead
address is found by a plain connect before librdkafka is asked, because librdkafka goes on trying until the deadline
and then says only that it failed.
"""

from __future__ import annotations

import importlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self

from barnabas.clients.addresses import connect
from barnabas.clients.errors import BrokerSilent, BrokerUnreachable, InvalidClientConfig, LibraryMissing, RequestRefused
from barnabas.model.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from concurrent.futures import Future

    from confluent_kafka import KafkaError

DEFAULT_TIMEOUT = 10.0
CONNECT_TIMEOUT = 3.0
METADATA_TIMEOUT = 5.0
NO_TOPIC_ID = "A" * 22
_URL_SAFE = str.maketrans("+/", "-_")
"""librdkafka writes ids in plain base64, Kafka in the form that is safe in addresses and file names."""
INTERNAL_TOPICS = frozenset({"__consumer_offsets", "__transaction_state", "__share_group_state"})


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionInfo:
    """Who holds a partition; `leader` is None while there is none."""

    partition: int
    leader: int | None
    replicas: tuple[int, ...]
    isr: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicInfo:
    """A topic and its partitions in order; `topic_id` is Kafka's text form, None where the broker has no ids."""

    name: str
    topic_id: str | None
    partitions: tuple[PartitionInfo, ...]

    @property
    def internal(self) -> bool:
        """Whether brokers keep their own state in it."""
        return self.name in INTERNAL_TOPICS

    @property
    def replication_factor(self) -> int:
        """Replicas of the first partition, which is how Kafka's tools count."""
        return len(self.partitions[0].replicas) if self.partitions else 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigValue:
    """One setting as the broker tells it; `value` is None when it is a secret or has none."""

    name: str
    value: str | None
    default: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class NewTopic:
    """A topic to be made. Without partitions, replication factor or assignment the broker's defaults hold."""

    name: str
    partitions: int | None = None
    replication_factor: int | None = None
    assignment: Sequence[Sequence[int]] = ()
    configs: Mapping[str, str] = field(default_factory=dict)


class Admin:
    """A connection to a cluster for administrative work. Use it as a context manager."""

    def __init__(
        self,
        bootstrap_servers: str,
        *,
        properties: Mapping[str, str] | None = None,
        timeout: float = DEFAULT_TIMEOUT,
    ) -> None:
        """Connect; `properties` are librdkafka's, `timeout` (seconds) holds for each call.

        Raises LibraryMissing without confluent-kafka, InvalidClientConfig for properties it does not take, and
        BrokerUnreachable when no address takes a connection.
        """
        self._bootstrap_servers = bootstrap_servers
        self._timeout = timeout
        self._kafka = _load_library()
        self._client = self._new_client(properties or {})
        connect(bootstrap_servers, min(timeout, CONNECT_TIMEOUT)).socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        del self._client

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

    def describe_topics(self, names: Iterable[str]) -> list[TopicInfo]:
        """The named topics, in the order of the names."""
        wanted = list(names)
        if not wanted:
            return []
        futures = self._client.describe_topics(self._kafka.TopicCollection(wanted), request_timeout=self._timeout)
        return [_topic_info(self._result(futures[name])) for name in wanted]

    def topic_configs(self, names: Iterable[str]) -> dict[str, list[ConfigValue]]:
        """Every setting of each topic, in the order in which the broker tells them."""
        admin = self._kafka.admin
        resources = [admin.ConfigResource(admin.ResourceType.TOPIC, name) for name in names]
        if not resources:
            return {}
        futures = self._client.describe_configs(resources, request_timeout=self._timeout)
        return {
            resource.name: [
                ConfigValue(
                    name=entry.name,
                    value=entry.value,
                    default=entry.source == admin.ConfigSource.DEFAULT_CONFIG.value,
                )
                for entry in self._result(future).values()
            ]
            for resource, future in futures.items()
        }

    def create_topic(self, topic: NewTopic) -> None:
        """Make a topic; returns when the cluster has it."""
        kwargs: dict[str, Any] = {"config": dict(topic.configs)}
        if topic.assignment:
            kwargs["replica_assignment"] = [list(replicas) for replicas in topic.assignment]
            kwargs["num_partitions"] = len(topic.assignment)
        else:
            kwargs["num_partitions"] = topic.partitions or -1
            kwargs["replication_factor"] = topic.replication_factor or -1
        futures = self._client.create_topics([self._kafka.admin.NewTopic(topic.name, **kwargs)], **self._deadlines())
        self._result(futures[topic.name])

    def create_partitions(self, topic: str, total: int, assignment: Sequence[Sequence[int]] = ()) -> None:
        """Grow a topic to `total` partitions; `assignment` names the replicas of each new one."""
        kwargs: dict[str, Any] = {}
        if assignment:
            kwargs["replica_assignment"] = [list(replicas) for replicas in assignment]
        futures = self._client.create_partitions(
            [self._kafka.admin.NewPartitions(topic, total, **kwargs)], **self._deadlines()
        )
        self._result(futures[topic])

    def alter_topic_config(self, topic: str, *, set_: Mapping[str, str], delete: Iterable[str] = ()) -> None:
        """Set some of a topic's settings and return others to their default; the rest stays."""
        admin = self._kafka.admin
        changes = [
            *(admin.ConfigEntry(k, v, incremental_operation=admin.AlterConfigOpType.SET) for k, v in set_.items()),
            *(admin.ConfigEntry(k, None, incremental_operation=admin.AlterConfigOpType.DELETE) for k in delete),
        ]
        resource = admin.ConfigResource(admin.ResourceType.TOPIC, topic, incremental_configs=changes)
        futures = self._client.incremental_alter_configs([resource], request_timeout=self._timeout)
        self._result(futures[resource])

    def delete_topics(self, names: Iterable[str]) -> None:
        """Delete topics and all they hold; returns when the cluster no longer shows them."""
        wanted = list(names)
        if not wanted:
            return
        futures = self._client.delete_topics(wanted, **self._deadlines())
        for name in wanted:
            self._result(futures[name])

    def _new_client(self, properties: Mapping[str, str]) -> Any:
        try:
            return self._kafka.admin.AdminClient(
                {"log_level": 0, **properties, "bootstrap.servers": self._bootstrap_servers}
            )
        except self._kafka.KafkaException as error:
            raise InvalidClientConfig(error.args[0].str()) from error

    def _deadlines(self) -> dict[str, float]:
        """The broker gets a little less time than we wait, so that its own answer arrives first."""
        return {"operation_timeout": self._timeout * 0.8, "request_timeout": self._timeout}

    def _metadata(self) -> Any:
        deadline = min(self._timeout, METADATA_TIMEOUT)
        try:
            return self._client.list_topics(timeout=deadline)
        except self._kafka.KafkaException as error:
            raise self._translated(error.args[0], deadline) from error

    def _result(self, future: Future[Any]) -> Any:
        try:
            return future.result(self._timeout + 1)
        except self._kafka.KafkaException as error:
            raise self._translated(error.args[0], self._timeout) from error
        except TimeoutError as error:
            raise self._silence(self._timeout) from error

    def _translated(self, error: KafkaError, deadline: float) -> Exception:
        if error.code() >= 0:
            return RequestRefused(_error_code(error.code()), error.str() or error.name())
        if error.code() in (error._TRANSPORT, error._TIMED_OUT, error._ALL_BROKERS_DOWN):
            return self._silence(deadline)
        return BrokerUnreachable(f"{self._bootstrap_servers}: {error.str()}")

    def _silence(self, deadline: float) -> BrokerSilent:
        return BrokerSilent(f"{self._bootstrap_servers} takes connections but gave no answer within {deadline:g} s")


def _load_library() -> Any:
    """The package confluent_kafka with its module admin, imported when first needed: it takes 60 ms."""
    try:
        importlib.import_module("confluent_kafka.admin")
        return importlib.import_module("confluent_kafka")
    except ImportError as error:
        raise LibraryMissing(
            f"this needs confluent-kafka, which is not installed ({error}); "
            "install it with: pip install 'barnabas[clients]'"
        ) from error


def _error_code(value: int) -> ErrorCode:
    try:
        return ErrorCode(value)
    except ValueError:
        return ErrorCode.unknown_server_error


def _topic_info(found: Any) -> TopicInfo:
    topic_id = str(found.topic_id).translate(_URL_SAFE)
    return TopicInfo(
        name=found.name,
        topic_id=None if topic_id == NO_TOPIC_ID else topic_id,
        partitions=tuple(
            PartitionInfo(
                partition=partition.id,
                leader=None if partition.leader is None or partition.leader.id < 0 else partition.leader.id,
                replicas=tuple(node.id for node in partition.replicas),
                isr=tuple(node.id for node in partition.isr),
            )
            for partition in sorted(found.partitions, key=lambda partition: partition.id)
        ),
    )
