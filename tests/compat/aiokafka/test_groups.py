"""aiokafka in groups."""

from __future__ import annotations

from tests.support.group_scenarios import GroupScenarios
from tests.support.members.aiokafka import AioKafkaMember


class TestGroups(GroupScenarios):
    """The classic protocol with eager assignors, which is what it has."""

    kind = AioKafkaMember
    assignors = ("range", "roundrobin", "sticky")
    keeps_epochs = False
