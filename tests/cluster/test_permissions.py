"""Permissions and quotas in a cluster: they reach every broker, and a forwarded request counts in the client's name.

The administrator and the brokers come from 127.0.0.1, the client that is judged from 127.0.0.2.
"""

from __future__ import annotations

import itertools
import time
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Final

import pytest

from tests.support.clusters import Cluster
from tests.support.quotas import describe, set_quotas
from tests.support.waiting import fastest, wait_until
from tests.support.wire import Connection, read_response, request
from tests.support.zookeeper import ZooKeeper

if TYPE_CHECKING:
    from collections.abc import Iterator

SETTINGS: Final = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow.everyone.if.no.acl.found": "true",
}
STRANGER: Final = "127.0.0.2"
TOPIC, GROUP, CLUSTER, TRANSACTIONAL_ID = 2, 3, 4, 5
LITERAL, ALLOW, ALL, READ, WRITE, DESCRIBE = 3, 3, 2, 3, 4, 8
CREATE_ACLS, DELETE_ACLS, DESCRIBE_ACLS = 30, 31, 29
CREATE_TOPICS, DELETE_TOPICS, INCREMENTAL_ALTER_CONFIGS, METADATA = 19, 20, 44, 3
TOPIC_DENIED: Final = 29
THROTTLED: Final = 89
WITHIN: Final = 1.0
"""Seconds in which a rule is in force on every broker; once in a few times, since the machine may be busy."""


def acl(kind: int, name: str, operation: int, host: str) -> dict[str, Any]:
    return {
        "resource_type": kind,
        "resource_name": name,
        "resource_pattern_type": LITERAL,
        "principal": "User:ANONYMOUS",
        "host": host,
        "operation": operation,
        "permission_type": ALLOW,
    }


def create(connection: Connection, *acls: dict[str, Any]) -> None:
    answer = connection.ask(CREATE_ACLS, 3, {"creations": list(acls)})
    assert [result.error_code for result in answer.results] == [0] * len(acls), answer


def delete(connection: Connection, one: dict[str, Any]) -> int:
    """Remove one ACL; gives how many were removed."""
    wanted = {
        "resource_type_filter": one["resource_type"],
        "resource_name_filter": one["resource_name"],
        "pattern_type_filter": one["resource_pattern_type"],
        "principal_filter": one["principal"],
        "host_filter": one["host"],
        "operation": one["operation"],
        "permission_type": one["permission_type"],
    }
    (result,) = connection.ask(DELETE_ACLS, 3, {"filters": [wanted]}).filter_results
    assert result.error_code == 0
    return len(result.matching_acls)


def may_describe(connection: Connection, topic: str) -> bool:
    body = {"topics": [{"name": topic}], "allow_auto_topic_creation": False}
    return bool(connection.ask(METADATA, 9, body).topics[0].error_code == 0)


class Judging:
    """A cluster with rules, an administrator and a stranger on each broker."""

    def __init__(self, cluster: Cluster, stack: ExitStack) -> None:
        self.cluster = cluster
        self.addresses = cluster.bootstrap.split(",")
        self.admins = [stack.enter_context(Connection(each)) for each in self.addresses]
        self.strangers = [stack.enter_context(Connection(each, source=STRANGER)) for each in self.addresses]
        admin = self.admins[0]
        kinds = ((TOPIC, "*"), (GROUP, "*"), (CLUSTER, "kafka-cluster"), (TRANSACTIONAL_ID, "*"))
        create(admin, *(acl(kind, name, ALL, "127.0.0.1") for kind, name in kinds))
        wait_until(lambda: all(self.known(each) >= len(kinds) for each in self.admins), "the first rules")
        topic = {"name": "t", "num_partitions": 1, "replication_factor": 3}
        assert admin.ask(CREATE_TOPICS, 7, {"topics": [topic], "timeout": 10_000}).topics[0].error_code == 0
        wait_until(lambda: all(may_describe(each, "t") for each in self.admins), "the topic")

    @staticmethod
    def known(connection: Connection) -> int:
        body = {"resource_type_filter": 1, "pattern_type_filter": 1, "operation": 1, "permission_type": 1}
        return sum(len(each.acls) for each in connection.ask(DESCRIBE_ACLS, 3, body).resources)


@pytest.fixture(scope="module", params=["sqlite", "zookeeper"])
def judging(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Judging]:
    folder = tmp_path_factory.mktemp("judging")
    with ExitStack() as stack:
        zookeeper = None
        if request.param == "zookeeper":
            zookeeper = stack.enter_context(ZooKeeper(folder)).connect
        cluster = stack.enter_context(Cluster(folder, 3, SETTINGS, zookeeper))
        yield Judging(cluster, stack)


def test_a_rule_is_in_force_on_every_broker_within_a_second_and_removing_it_leaves_the_others(judging: Judging) -> None:
    """CVE-2024-27309: removing one of several ACLs of a resource leaves the others in force on every broker."""
    assert fastest(lambda: seconds_of_a_rule(judging), WITHIN) < WITHIN


def seconds_of_a_rule(judging: Judging) -> float:
    """How long it takes until a rule is in force on every broker, or until its removal is, whichever is longer."""
    admin, strangers = judging.admins[1], judging.strangers
    assert not any(may_describe(each, "t") for each in strangers)
    read, write = acl(TOPIC, "t", READ, STRANGER), acl(TOPIC, "t", WRITE, STRANGER)
    began = time.monotonic()
    create(admin, read, write)
    wait_until(lambda: all(may_describe(each, "t") for each in strangers), "the rule on every broker")
    longest = time.monotonic() - began
    before = judging.known(admin)
    assert delete(admin, write) == 1
    wait_until(lambda: all(judging.known(each) == before - 1 for each in judging.admins), "the removal on every broker")
    assert all(may_describe(each, "t") for each in strangers)
    began = time.monotonic()
    assert delete(admin, read) == 1
    wait_until(lambda: not any(may_describe(each, "t") for each in strangers), "the removal on every broker")
    return max(longest, time.monotonic() - began)


def test_a_forwarded_request_is_judged_in_the_clients_name(judging: Judging) -> None:
    for stranger in judging.strangers:  # two of the three brokers are not the controller
        wanted = {"name": "u", "num_partitions": 1, "replication_factor": 1}
        made = stranger.ask(CREATE_TOPICS, 7, {"topics": [wanted], "timeout": 10_000}).topics[0]
        assert made.error_code == TOPIC_DENIED
        change = [{"name": "retention.ms", "config_operation": 0, "value": "1"}]
        resource = {"resource_type": 2, "resource_name": "t", "configs": change}
        altered = stranger.ask(INCREMENTAL_ALTER_CONFIGS, 1, {"resources": [resource]}).responses[0]
        assert altered.error_code == TOPIC_DENIED
        altered = stranger.ask(33, 2, {"resources": [{**resource, "configs": []}]}).responses[0]
        assert altered.error_code == TOPIC_DENIED
        gone = stranger.ask(DELETE_TOPICS, 5, {"topic_names": ["t"], "timeout": 10_000}).responses[0]
        assert gone.error_code == TOPIC_DENIED
    assert all(may_describe(each, "t") for each in judging.admins)
    assert not any(may_describe(each, "u") for each in judging.admins)


def test_a_stranger_opens_no_envelope(judging: Judging) -> None:
    for connection in (judging.strangers[0], judging.admins[0]):  # nor does an administrator, who is no broker
        body = {"request_data": b"\0\x13\0\x07\0\0\0\1\xff\xff\0", "client_host_address": b"\x7f\0\0\1"}
        source = connection.socket.getsockname()[0]
        with (
            Connection(judging.addresses[0], source=source) as fresh,
            pytest.raises(AssertionError, match="was closed"),
        ):
            fresh.ask(58, 0, body)


def known_quotas(connection: Connection) -> dict[tuple[str | None, ...], dict[str, float]]:
    entries = describe(connection, strict=False)["entries"]
    return {
        tuple(part["entity_name"] for part in one["entity"]): {each["key"]: each["value"] for each in one["values"]}
        for one in entries
    }


def test_a_quota_is_in_force_on_every_broker_within_a_second(judging: Judging) -> None:
    rates = itertools.count(100)

    def seconds_of_a_quota(address: str) -> float:
        began, rate = time.monotonic(), float(next(rates))
        set_quotas(address, {"user": "ANONYMOUS", "client-id": "odd/ name"}, producer_byte_rate=rate)
        expected = {"producer_byte_rate": rate}
        wait_until(
            lambda: all(known_quotas(each).get(("odd/ name", "ANONYMOUS")) == expected for each in judging.admins),
            "the quota on every broker",
            every=0.02,
        )
        return time.monotonic() - began

    for address in judging.addresses:  # two of them forward it to the controller
        assert fastest(lambda: seconds_of_a_quota(address), WITHIN) < WITHIN  # noqa: B023
    body = {"acks": 1, "timeout": 10_000, "topic_data": []}
    for address in judging.addresses:
        with Connection(address, client_id="odd/ name") as greedy:
            greedy.send_frame(request(0, 9, 1, body, "odd/ name") + bytes(2000))
            frame = greedy.receive_frame()
            assert frame is not None
            assert read_response(0, 9, frame, 1).throttle_time.total_seconds() > 5


def test_a_forwarded_change_of_topics_counts_in_the_clients_name(judging: Judging) -> None:
    """The controller counts it, and the broker that forwarded it mutes its client."""
    set_quotas(judging.addresses[0], {"client-id": "maker"}, controller_mutation_rate=0.5)
    wait_until(lambda: all(("maker",) in known_quotas(each) for each in judging.admins), "the quota on every broker")
    makers = [Connection(address, client_id="maker") for address in judging.addresses]
    for number, maker in enumerate(makers):
        wanted = {"name": f"made-{number}", "num_partitions": 10, "replication_factor": 1}
        made = maker.ask(CREATE_TOPICS, 7, {"topics": [wanted], "timeout": 10_000})
        assert made.topics[0].error_code == (0 if number == 0 else THROTTLED)
        assert (made.throttle_time.total_seconds() > 0) is (number > 0)
    for maker in makers[1:]:
        maker.socket.settimeout(0.5)
        with pytest.raises(TimeoutError):
            maker.ask(METADATA, 9, {"topics": []})
    for maker in makers:
        maker.socket.close()
    with Connection(judging.addresses[1], client_id="another") as other:
        wanted = {"name": "made-by-another", "num_partitions": 7, "replication_factor": 1}
        assert other.ask(CREATE_TOPICS, 7, {"topics": [wanted], "timeout": 10_000}).topics[0].error_code == 0


def test_rules_outlive_a_restart_of_every_broker(judging: Judging) -> None:
    """The last of these tests: connections of the others end here."""
    cluster = judging.cluster
    known = judging.known(judging.admins[0])
    for broker_id in list(cluster.nodes):
        cluster.nodes[broker_id].kill()
    for broker_id in list(cluster.nodes):
        cluster.start(broker_id, wait=False)
    for node in cluster.nodes.values():
        node.wait_ready()
    for address in judging.addresses:
        with Connection(address) as admin, Connection(address, source=STRANGER) as stranger:
            assert judging.known(admin) == known
            assert not may_describe(stranger, "t")
