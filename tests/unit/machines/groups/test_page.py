from __future__ import annotations

from pathlib import Path

from barnabas.machines.groups.page import page

DOCS = Path(__file__).parents[4] / "docs"


def test_the_page_of_states_is_the_tables() -> None:
    text = (DOCS / "group-states.md").read_text(encoding="utf-8")
    assert text == page(), "run: python -m barnabas.machines.groups.page > docs/group-states.md"


def test_every_state_is_drawn_and_explained() -> None:
    text = page()
    for state in ("PreparingRebalance", "CompletingRebalance", "Assigning", "Reconciling", "UnreleasedPartitions"):
        assert f" {state}" in text
        assert f"| `{state}` | " in text
