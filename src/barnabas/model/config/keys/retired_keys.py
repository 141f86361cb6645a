"""The broker keys that Apache Kafka 3.9 knows and 4.3 does not: ZooKeeper's, and others that were given up.

A server.properties of that time names them, so they are no mistakes. Same columns as `broker_keys`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from barnabas.model.config.definition import Range
from barnabas.model.config.keys.words import (
    BOOLEAN,
    CLUSTER_WIDE,
    HIGH,
    INT,
    LIST,
    LONG,
    LOW,
    MAX_LONG,
    MEDIUM,
    NOT_NEGATIVE,
    PASSWORD,
    POSITIVE,
    READ_ONLY,
    SHORT,
    STRING,
)

if TYPE_CHECKING:
    from barnabas.model.config.definition import Row

RETIRED: Final[tuple[Row, ...]] = (
    ("auto.include.jmx.reporter", BOOLEAN, True, None, LOW, READ_ONLY),
    ("broker.id.generation.enable", BOOLEAN, True, None, MEDIUM, READ_ONLY),
    ("control.plane.listener.name", STRING, None, None, HIGH, READ_ONLY),
    ("controlled.shutdown.max.retries", INT, 3, None, MEDIUM, READ_ONLY),
    ("controlled.shutdown.retry.backoff.ms", LONG, 5000, None, MEDIUM, READ_ONLY),
    ("delegation.token.master.key", PASSWORD, None, None, MEDIUM, READ_ONLY),
    ("eligible.leader.replicas.enable", BOOLEAN, False, None, HIGH, READ_ONLY),
    ("group.coordinator.new.enable", BOOLEAN, False, None, MEDIUM, READ_ONLY),
    ("group.share.enable", BOOLEAN, False, None, MEDIUM, READ_ONLY),
    ("group.share.max.groups", SHORT, 10, Range(1, 100), MEDIUM, READ_ONLY),
    ("inter.broker.protocol.version", STRING, "3.9-IV0", None, MEDIUM, READ_ONLY),
    ("leader.imbalance.per.broker.percentage", INT, 10, None, HIGH, READ_ONLY),
    ("log.message.downconversion.enable", BOOLEAN, True, None, LOW, CLUSTER_WIDE),
    ("log.message.format.version", STRING, "3.0-IV1", None, MEDIUM, READ_ONLY),
    ("log.message.timestamp.difference.max.ms", LONG, MAX_LONG, NOT_NEGATIVE, MEDIUM, CLUSTER_WIDE),
    ("metadata.log.segment.min.bytes", INT, 8_388_608, Range(12), HIGH, READ_ONLY),
    ("offsets.commit.required.acks", SHORT, -1, None, HIGH, READ_ONLY),
    ("password.encoder.cipher.algorithm", STRING, "AES/CBC/PKCS5Padding", None, LOW, READ_ONLY),
    ("password.encoder.iterations", INT, 4096, Range(1024), LOW, READ_ONLY),
    ("password.encoder.key.length", INT, 128, Range(8), LOW, READ_ONLY),
    ("password.encoder.keyfactory.algorithm", STRING, None, None, LOW, READ_ONLY),
    ("password.encoder.old.secret", PASSWORD, None, None, MEDIUM, READ_ONLY),
    ("password.encoder.secret", PASSWORD, None, None, MEDIUM, READ_ONLY),
    ("replica.lag.max.messages", LONG, None, POSITIVE, HIGH, READ_ONLY),
    ("reserved.broker.max.id", INT, 1000, NOT_NEGATIVE, MEDIUM, READ_ONLY),
    ("zookeeper.clientCnxnSocket", STRING, None, None, MEDIUM, READ_ONLY),
    ("zookeeper.connect", STRING, None, None, HIGH, READ_ONLY),
    ("zookeeper.connection.timeout.ms", INT, None, None, HIGH, READ_ONLY),
    ("zookeeper.max.in.flight.requests", INT, 10, POSITIVE, HIGH, READ_ONLY),
    ("zookeeper.metadata.migration.enable", BOOLEAN, False, None, HIGH, READ_ONLY),
    ("zookeeper.metadata.migration.min.batch.size", INT, 200, POSITIVE, MEDIUM, READ_ONLY),
    ("zookeeper.session.timeout.ms", INT, 18_000, None, HIGH, READ_ONLY),
    ("zookeeper.set.acl", BOOLEAN, False, None, HIGH, READ_ONLY),
    ("zookeeper.ssl.cipher.suites", LIST, None, None, LOW, READ_ONLY),
    ("zookeeper.ssl.client.enable", BOOLEAN, False, None, MEDIUM, READ_ONLY),
    ("zookeeper.ssl.crl.enable", BOOLEAN, False, None, LOW, READ_ONLY),
    ("zookeeper.ssl.enabled.protocols", LIST, None, None, LOW, READ_ONLY),
    ("zookeeper.ssl.endpoint.identification.algorithm", STRING, "HTTPS", None, LOW, READ_ONLY),
    ("zookeeper.ssl.keystore.location", STRING, None, None, MEDIUM, READ_ONLY),
    ("zookeeper.ssl.keystore.password", PASSWORD, None, None, MEDIUM, READ_ONLY),
    ("zookeeper.ssl.keystore.type", STRING, None, None, MEDIUM, READ_ONLY),
    ("zookeeper.ssl.ocsp.enable", BOOLEAN, False, None, LOW, READ_ONLY),
    ("zookeeper.ssl.protocol", STRING, "TLSv1.2", None, LOW, READ_ONLY),
    ("zookeeper.ssl.truststore.location", STRING, None, None, MEDIUM, READ_ONLY),
    ("zookeeper.ssl.truststore.password", PASSWORD, None, None, MEDIUM, READ_ONLY),
    ("zookeeper.ssl.truststore.type", STRING, None, None, MEDIUM, READ_ONLY),
)
"""Broker keys of Kafka 3.9 only, and replica.lag.max.messages, which is older still."""
