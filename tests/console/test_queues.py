"""What the console tells of a queue that is at work."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from barnabas import Queue
from barnabas.clients import Admin, Producer
from barnabas.clients.admin.cluster_admin import ClusterAdmin
from barnabas.clients.admin.configs import EntityType
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from barnabas.testing import Cluster
    from tests.support.consoles import ConsoleProcess


def test_messages_in_flight_and_dead_letters_are_told(console: ConsoleProcess, cluster: Cluster) -> None:
    """Of five messages the first waits for another try, the third is done, the fourth is given up."""
    with Admin(cluster.bootstrap_servers) as admin:
        admin.create_topic("errands", 1, 3)
        admin.create_topic("dlq.errands", 1, 3, configs={"errors.deadletterqueue.group.enable": "true"})
    given = {"errors.deadletterqueue.topic.name": "dlq.errands", "share.delivery.count.limit": "10"}
    with ClusterAdmin(cluster.bootstrap_servers) as tools:
        tools.configs.alter(EntityType.GROUPS, "runners", add=given, delete=())
    with Producer(cluster.bootstrap_servers) as producer:
        for number in range(5):
            producer.send("errands", f"errand {number}")

    def told() -> dict[str, Any]:
        answer = console.ask("GET", "/api/group?id=runners")
        return answer.json if answer.status == 200 else {}

    def is_told() -> dict[str, Any] | None:
        found = told()
        row: dict[str, Any] = next(iter(found.get("in_flight") or ()), {})
        done = (row.get("available"), row.get("acknowledged"), row.get("archived")) == (1, 1, 1)
        return found if done and (found["dead_letters"] or {}).get("records") == 1 else None

    with Queue(cluster.bootstrap_servers, "errands", "runners") as queue:
        messages = [wait_until(lambda: queue.get(timeout=1), "a message of the queue") for _ in range(5)]
        messages.sort(key=lambda message: message.record.offset)
        for word in (messages[2].done(), messages[3].reject(), messages[0].retry()):
            word.result(20)
        found = wait_until(is_told, "the console to tell what is stored")
    (row,) = found["in_flight"]
    assert (row["topic"], row["partition"], row["start"], row["deliveries"]) == ("errands", 0, 0, 1)
    states = [(each["first"], each["last"], each["state"]) for each in row["runs"] if each["state"] != "Available"]
    assert states == [(2, 2, "Acknowledged"), (3, 3, "Archived")]
    assert found["dead_letters"] == {"topic": "dlq.errands", "copies": False, "records": 1}
    assert found["in_flight_refusal"] is None


def test_other_groups_have_nothing_in_flight(console: ConsoleProcess, cluster: Cluster) -> None:
    with Admin(cluster.bootstrap_servers) as admin:
        admin.create_topic("read", 1, 3)
        admin.commit_group_offsets("plain-readers", {admin.partitions("read")[0]: 0})
    found = console.ask("GET", "/api/group?id=plain-readers").json
    assert (found["in_flight"], found["in_flight_refusal"], found["dead_letters"]) == (None, None, None)
