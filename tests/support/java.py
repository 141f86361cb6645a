"""Apache Kafka's Java tools, one JVM per call.

Starting a JVM costs more than anything a tool then does, so tests should ask much of each call.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tests.support import class_archives, jars

if TYPE_CHECKING:
    from collections.abc import Mapping

TOOLS: Final = {
    "acls": "org.apache.kafka.tools.AclCommand",
    "topics": "org.apache.kafka.tools.TopicCommand",
    "configs": "kafka.admin.ConfigCommand",
    "get-offsets": "org.apache.kafka.tools.GetOffsetShell",
    "log-dirs": "org.apache.kafka.tools.LogDirsCommand",
    "delete-records": "org.apache.kafka.tools.DeleteRecordsCommand",
    "broker-api-versions": "org.apache.kafka.tools.BrokerApiVersionsCommand",
    "console-producer": "org.apache.kafka.tools.ConsoleProducer",
    "console-consumer": "org.apache.kafka.tools.consumer.ConsoleConsumer",
    "console-share-consumer": "org.apache.kafka.tools.consumer.ConsoleShareConsumer",
    "producer-perf-test": "org.apache.kafka.tools.ProducerPerformance",
    "consumer-groups": "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",
    "groups": "org.apache.kafka.tools.GroupsCommand",
    "share-groups": "org.apache.kafka.tools.consumer.group.ShareGroupCommand",
    "consumer-perf-test": "org.apache.kafka.tools.ConsumerPerformance",
    "e2e-latency": "org.apache.kafka.tools.EndToEndLatency",
    "leader-election": "org.apache.kafka.tools.LeaderElectionCommand",
    "reassign-partitions": "org.apache.kafka.tools.reassign.ReassignPartitionsCommand",
    "cluster": "org.apache.kafka.tools.ClusterTool",
    "transactions": "org.apache.kafka.tools.TransactionsCommand",
    "transactional-message-copier": "org.apache.kafka.tools.TransactionalMessageCopier",
    "replica-verification": "org.apache.kafka.tools.ReplicaVerificationTool",
    "verifiable-producer": "org.apache.kafka.tools.VerifiableProducer",
    "verifiable-consumer": "org.apache.kafka.tools.VerifiableConsumer",
    "verifiable-share-consumer": "org.apache.kafka.tools.VerifiableShareConsumer",
    "share-consumer-perf-test": "org.apache.kafka.tools.ShareConsumerPerformance",
    "features": "org.apache.kafka.tools.FeatureCommand",
    "storage": "kafka.tools.StorageTool",
    "dump-log": "org.apache.kafka.tools.DumpLogSegments",
}
"""The scripts of Kafka's bin/, without `kafka-`, and the classes that they start."""
OLD_TOOLS: Final = {"dump-log": "kafka.tools.DumpLogSegments"}
"""Those whose class was another one in Kafka 3.9."""

SHORT_LIVED: Final = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xshare:auto", "-Xmx256m")
_HERE: Final = Path(__file__).parent


class ToolFailed(AssertionError):
    """A tool ended with a code other than 0."""

    def __init__(self, name: str, done: subprocess.CompletedProcess[str]) -> None:
        super().__init__(f"{name} ended with {done.returncode}:\n{done.stdout}\n{done.stderr}")
        self.output = done.stdout + done.stderr


def command(version: str, main: str, *flags: str, classpath: str = "") -> list[str]:
    """The words that start class `main` of Kafka `version`, with its logs on stderr."""
    logging = [f"-Dlog4j.configuration=file:{_HERE / 'log4j.properties'}"]
    if version.startswith("4"):
        logging = [f"-Dlog4j2.configurationFile={_HERE / 'log4j2.properties'}"]
    archived = () if classpath else class_archives.flags(version)
    return [jars.program("java"), *flags, *archived, *logging, "-cp", classpath or jars.classpath(version), main]


def tool(
    version: str,
    name: str,
    *arguments: str,
    stdin: str = "",
    seconds: float = 120,
    env: Mapping[str, str] | None = None,
) -> str:
    """Run a tool to its end and return what it wrote to stdout; another exit code than 0 is ToolFailed."""
    main = TOOLS[name] if version.startswith("4") else OLD_TOOLS.get(name, TOOLS[name])
    done = subprocess.run(
        [*command(version, main, *SHORT_LIVED), *arguments],
        input=stdin,
        capture_output=True,
        text=True,
        timeout=seconds,
        env={**os.environ, **(env or {})},
    )
    if done.returncode != 0:
        raise ToolFailed(f"kafka-{name} {' '.join(arguments)}", done)
    return done.stdout
