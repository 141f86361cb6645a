"""What is held against a topic with unclean elections, and what is not."""

from __future__ import annotations

import json
import random

from tests.simulation.whole.client import Client
from tests.simulation.whole.history import Log
from tests.simulation.whole.loop import VirtualLoop
from tests.simulation.whole.loose import STATE, TOPIC, LooseProducer, judge_loose, watch_elections
from tests.simulation.whole.network import Network
from tests.simulation.whole.store import MemoryTree


class KnowsLeader(Client):
    """A client that does not have to ask who leads."""

    leader = 1

    def leader_of(self, topic: str, partition: int) -> int:
        return self.leader


def state(leader: int, *isr: int) -> bytes:
    return json.dumps({"leader": leader, "isr": isr}).encode()


def test_only_what_a_leader_stores_that_an_unclean_election_has_passed_over_may_be_lost_after_it() -> None:
    chance = random.Random(1)
    loop = VirtualLoop(chance)
    log, tree = Log(loop, tell=False), MemoryTree(Network(loop, chance, lambda *_: None), chance)
    client = KnowsLeader("c", [], chance)
    producer = LooseProducer(client, log, TOPIC, 1, lambda: True)
    producer._began = 6.0
    watch_elections(log, tree, lambda: 5.0)
    tree.observers[STATE](state(1, 1), state(2, 2))
    producer._stored(0, ["by the old leader"], 3)
    client.leader = 2
    producer._stored(0, ["by the new one"], 3)
    tree.observers[STATE](state(2, 2, 1), state(1, 2, 1))
    client.leader = 1
    producer._stored(0, ["when the old one leads again"], 4)
    missing = judge_loose(log, [])
    loop.close()
    assert [line.split(" of ")[0] for line in missing] == [
        "lost write: by the new one",
        "lost write: when the old one leads again",
    ]
