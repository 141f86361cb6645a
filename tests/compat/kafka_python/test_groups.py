"""kafka-python in groups."""

from __future__ import annotations

from tests.support.group_scenarios import EagerAndCooperative
from tests.support.members.kafka_python import KafkaPythonMember


class TestGroups(EagerAndCooperative):
    """The classic protocol, which is the one that it has."""

    kind = KafkaPythonMember
    assignors = ("range", "roundrobin", "sticky", "cooperative-sticky")
