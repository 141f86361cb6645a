from __future__ import annotations

from pathlib import Path

from barnabas.machines.transactions.page import page
from barnabas.machines.transactions.states import TransactionState

DOCS = Path(__file__).parents[4] / "docs"


def test_the_page_of_states_is_the_table() -> None:
    text = (DOCS / "transaction-states.md").read_text(encoding="utf-8")
    assert text == page(), "run: python -m barnabas.machines.transactions.page > docs/transaction-states.md"


def test_every_state_is_drawn_and_explained() -> None:
    text = page()
    for state in TransactionState:
        assert f" {state.label}" in text
        assert f"| `{state.label}` | " in text
