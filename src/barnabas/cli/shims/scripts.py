"""Kafka's scripts, the commands of Barnabas that stand behind them, and flags that Kafka once had.

A tutorial of 2014 says `kafka-topics.sh --create --zookeeper localhost:2181`. Flags that only have another name now are
renamed; flags about things that are no more, first of all ZooKeeper, are left out. Both with a warning, since whoever
types them should learn the new ones.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, NamedTuple


class Dropped(NamedTuple):
    """A flag that has no meaning any more."""

    why: str
    has_value: bool = True


ZOOKEEPER: Final = Dropped("tools talk to brokers, and no longer to ZooKeeper")
_THREADS: Final = Dropped("there is one client")
_NEW_CONSUMER: Final = Dropped("there is no other", has_value=False)
_NOTHING_ASKS: Final = Dropped("nothing asks back", has_value=False)


@dataclass(frozen=True, slots=True)
class Script:
    """A command of Barnabas, and what is done with old flags; `added` is what a flag of Kafka had by default."""

    command: tuple[str, ...]
    renamed: dict[str, str] = field(default_factory=dict)
    dropped: dict[str, Dropped] = field(default_factory=dict)
    added: dict[str, str] = field(default_factory=dict)


_BROKER_LIST: Final = {"--broker-list": "--bootstrap-server"}
_OLD_TOPICS: Final = {
    "--zookeeper": ZOOKEEPER,
    "--force": _NOTHING_ASKS,
    "--disable-rack-aware": Dropped("replicas are placed by racks where brokers have them", has_value=False),
}

SCRIPTS: Final[dict[str, Script]] = {
    "kafka-topics": Script(("topics",), dropped=_OLD_TOPICS),
    "kafka-create-topic": Script(
        ("topics", "--create"), {"--partition": "--partitions", "--replica": "--replication-factor"}, _OLD_TOPICS
    ),
    "kafka-list-topic": Script(("topics", "--describe"), dropped=_OLD_TOPICS),
    "kafka-console-producer": Script(("produce",), _BROKER_LIST),
    "kafka-console-consumer": Script(
        ("consume",), _BROKER_LIST, {"--zookeeper": ZOOKEEPER, "--new-consumer": _NEW_CONSUMER}
    ),
    "kafka-console-share-consumer": Script(("consume", "--share")),
    "kafka-share-groups": Script(("share-groups",)),
    "kafka-share-consumer-perf-test": Script(("share-consumer-perf",)),
    "kafka-consumer-groups": Script(("groups",), dropped={"--zookeeper": ZOOKEEPER, "--new-consumer": _NEW_CONSUMER}),
    "kafka-consumer-offset-checker": Script(
        ("groups", "--describe"),
        dropped={
            "--zookeeper": ZOOKEEPER,
            "--zkconnect": ZOOKEEPER,
            "--topic": Dropped("all topics of the group are shown"),
            "--broker-info": Dropped("`barnabas topics --describe` shows who leads", has_value=False),
            "--retry.backoff.ms": Dropped("nothing is tried again"),
            "--socket.timeout.ms": Dropped("--timeout says how long to wait"),
        },
    ),
    "kafka-producer-perf-test": Script(
        ("producer-perf",),
        {**_BROKER_LIST, "--messages": "--num-records", "--message-size": "--record-size", "--topics": "--topic"},
        {"--threads": _THREADS},
        {"--throughput": "-1"},
    ),
    "kafka-consumer-perf-test": Script(
        ("consumer-perf",),
        _BROKER_LIST,
        {
            "--zookeeper": ZOOKEEPER,
            "--new-consumer": _NEW_CONSUMER,
            "--threads": _THREADS,
            "--num-fetch-threads": _THREADS,
        },
    ),
    "kafka-e2e-latency": Script(("latency",)),
    "kafka-leader-election": Script(("leader-election",)),
    "kafka-preferred-replica-election": Script(
        ("leader-election", "--election-type", "preferred"), dropped={"--zookeeper": ZOOKEEPER}
    ),
    "kafka-reassign-partitions": Script(("reassign-partitions",), dropped={"--zookeeper": ZOOKEEPER}),
    "kafka-configs": Script(
        ("configs",),
        dropped={
            "--zookeeper": ZOOKEEPER,
            "--zk-tls-config-file": ZOOKEEPER,
            "--force": _NOTHING_ASKS,
        },
    ),
    "kafka-get-offsets": Script(("get-offsets",), _BROKER_LIST, {"--max-wait-ms": Dropped("the answer is awaited")}),
    "kafka-delete-records": Script(("delete-records",)),
    "kafka-log-dirs": Script(("log-dirs",)),
    "kafka-broker-api-versions": Script(("broker-api-versions",)),
    "kafka-features": Script(("features",)),
    "kafka-transactions": Script(("transactions",)),
    "kafka-cluster": Script(("cluster",)),
    "kafka-acls": Script(
        ("acls",),
        {"--bootstrap-controller": "--bootstrap-server"},
        {"--authorizer": ZOOKEEPER, "--authorizer-properties": ZOOKEEPER},
    ),
    "kafka-delegation-tokens": Script(("delegation-tokens",)),
    "kafka-dump-log": Script(("log", "dump")),
}
"""Scripts that are one command each."""

SERVERS: Final = (
    "kafka-server-start",
    "kafka-server-stop",
    "zookeeper-server-start",
    "zookeeper-server-stop",
    "zookeeper-shell",
    "kafka-storage",
)
"""Scripts around servers."""

_NO_CONNECT: Final = (
    "Barnabas has no Kafka Connect. A file goes into a topic by `barnabas produce --topic NAME FILE`, and a topic "
    "into a file by `barnabas consume --topic NAME --from-beginning > FILE`."
)
_NO_MIRROR: Final = (
    "Barnabas has no MirrorMaker. A topic is copied by `barnabas consume --bootstrap-server FROM --topic NAME "
    "--from-beginning --json | barnabas produce --bootstrap-server TO --topic NAME --json`."
)
ABSENT: Final[dict[str, str]] = {
    "connect-standalone": _NO_CONNECT,
    "connect-distributed": _NO_CONNECT,
    "connect-mirror-maker": _NO_MIRROR,
    "kafka-mirror-maker": _NO_MIRROR,
}
"""Scripts that tutorials name and that nothing stands behind: what to do instead."""

CLASSES: Final = {
    "GetOffsetShell": "kafka-get-offsets",
    "DumpLogSegments": "kafka-dump-log",
    "ProducerPerformance": "kafka-producer-perf-test",
    "ConsumerPerformance": "kafka-consumer-perf-test",
    "EndToEndLatency": "kafka-e2e-latency",
    "ConsoleProducer": "kafka-console-producer",
    "ConsoleConsumer": "kafka-console-consumer",
    "ConsoleShareConsumer": "kafka-console-share-consumer",
    "ShareGroupCommand": "kafka-share-groups",
    "ShareConsumerPerformance": "kafka-share-consumer-perf-test",
    "ConsumerGroupCommand": "kafka-consumer-groups",
    "ConsumerOffsetChecker": "kafka-consumer-offset-checker",
    "TopicCommand": "kafka-topics",
    "AclCommand": "kafka-acls",
    "DelegationTokenCommand": "kafka-delegation-tokens",
}
"""Classes that kafka-run-class is told to run, by the last part of their names."""

ALL: Final = (*SCRIPTS, *SERVERS, "kafka-run-class", *ABSENT)
