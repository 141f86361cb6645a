"""The page about queues draws the table of what may become of a message."""

from __future__ import annotations

from pathlib import Path

from barnabas.machines.shares.state_batches import DeliveryState
from barnabas.machines.shares.states import DELIVERY_TRANSITIONS, life_of_a_message

PAGE = Path(__file__).parents[4] / "docs" / "queues.md"


def test_the_page_about_queues_has_the_table() -> None:
    wanted = life_of_a_message().strip()
    assert wanted in PAGE.read_text(encoding="utf-8"), "the section is: python -m barnabas.machines.shares.states"


def test_what_is_final_stays_so() -> None:
    for final in filter(lambda state: state.is_final, DeliveryState):
        assert not any(DELIVERY_TRANSITIONS.allows(final, after) for after in DeliveryState)
