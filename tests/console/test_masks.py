"""Records of which something is hidden stay hidden, whatever is done with them over the console."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from barnabas.clients import Admin, Producer

if TYPE_CHECKING:
    from barnabas.testing import Cluster
    from tests.support.consoles import ConsoleProcess

CARD = json.dumps({"card": {"number": "4111-secret", "name": "Zoë"}})
TOLD = {"__dlq.errors.topic": "cards-given-up", "__dlq.errors.partition": "0", "__dlq.errors.offset": "0"}


@pytest.fixture(scope="module")
def letters(cluster: Cluster) -> str:
    """A masked record, its dead letter with a copy of it, and one that only tells of it."""
    with Admin(cluster.bootstrap_servers) as admin:
        for topic in ("cards-given-up", "card-letters"):
            admin.create_topic(topic, 1, 3)
    with Producer(cluster.bootstrap_servers) as producer:
        producer.send("cards-given-up", CARD)
        producer.send("card-letters", CARD, headers={"token": "4111-secret", **TOLD})
        producer.send("card-letters", None, headers=TOLD)
    return "card-letters"


@pytest.mark.parametrize("offset", [0, 1])
def test_a_dead_letter_is_not_sent_again_to_where_its_copy_would_be_seen(
    console: ConsoleProcess, letters: str, offset: int
) -> None:
    """To its own topic it was, without the headers by which rules reach it."""
    answer = console.ask("POST", f"/api/topics/{letters}/records/0/{offset}/again", {"to": letters})
    assert (answer.status, "hidden by a rule" in answer.json["error"]) == (400, True), answer
    seen = console.ask("GET", f"/api/topics/{letters}/records?from=oldest")
    assert b'"found":2' in seen.body
    assert b"secret" not in seen.body


@pytest.mark.parametrize("offset", [0, 1])
def test_it_is_sent_again_to_its_original_topic(console: ConsoleProcess, letters: str, offset: int) -> None:
    answer = console.ask("POST", f"/api/topics/{letters}/records/0/{offset}/again", {"to": "cards-given-up"})
    assert answer.status == 200, answer
    seen = console.ask("GET", f"/api/topics/cards-given-up/records/0/{answer.json['offset']}")
    assert "Zo" in seen.json["value"]["text"]
    assert b"secret" not in seen.body
