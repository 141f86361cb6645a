"""Consumer groups in tests: settings with which groups react at once instead of within seconds.

A Kafka that stands in for Barnabas (`BARNABAS_TEST_BOOTSTRAP`, `BARNABAS_TEST_KAFKA`) should have them too; with
others the tests are slow, and some give up waiting.
"""

from __future__ import annotations

from typing import Final

QUICK: Final = {
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "500",
    "group.consumer.min.session.timeout.ms": "500",
    "group.consumer.session.timeout.ms": "10000",
    "group.consumer.min.heartbeat.interval.ms": "50",
    "group.consumer.heartbeat.interval.ms": "150",
    "group.consumer.assignment.interval.ms": "0",
    "group.share.assignment.interval.ms": "0",
    "group.share.min.record.lock.duration.ms": "1000",
    "log.cleaner.backoff.ms": "200",
    "offsets.topic.num.partitions": "5",
    "log.retention.check.interval.ms": "86400000",
    "connections.max.idle.ms": "86400000",
}
"""Members are noticed and told of their partitions in fractions of a second, and none is missed because a machine is
busy. Records that tests write with old timestamps stay for as long as the tests take, and so do connections that wait
for their next test."""
