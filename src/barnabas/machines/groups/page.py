"""docs/group-states.md, drawn from the transition tables so that it cannot say anything else.

python -m barnabas.machines.groups.page > docs/group-states.md
"""

from __future__ import annotations

import ast
import inspect
from typing import TYPE_CHECKING, Any

from barnabas.machines.groups.consumer_states import (
    GROUP_TRANSITIONS,
    MEMBER_TRANSITIONS,
    ConsumerGroupState,
    MemberState,
)
from barnabas.machines.groups.states import CLASSIC_TRANSITIONS, ClassicGroupState

if TYPE_CHECKING:
    from collections.abc import Iterable
    from enum import Enum

    from barnabas.machines.groups.states import TransitionTable

INTRODUCTION = """\
# States of a group

A group is of one kind at a time: *classic*, where members join in rounds and one of them, the leader, shares out the
partitions; or *consumer*, the new protocol (KIP-848), where the broker shares them out and moves each member to its
share step by step. `barnabas groups --list --state --type` shows both, and [Groups](groups.md) says what they are for.

This page is made from the tables that the broker's own rules are held to: a step that is not here does not happen. The
numbers at the arrows are those of the causes below each picture.

"""
CLASSIC = """\
A round begins when somebody joins or leaves. Members notice by the answer to a heartbeat, join again, and wait for
each other; the leader is told who has joined and sends back who reads what.
"""
CONSUMER = """\
The state of the group follows from three numbers: the epoch of the group, which grows when members or topics change;
the epoch of the target assignment, which follows it; and the epoch of each member, which follows the target.
"""
MEMBER = """\
Each member is led to its share of the target assignment: first it gives back what it is to lose, then its epoch moves
on, then it gets what others have given back. No partition has two owners on the way.
"""


def page() -> str:
    """The whole page."""
    return INTRODUCTION + "\n".join(
        (
            *_section("A classic group", CLASSIC, ClassicGroupState, CLASSIC_TRANSITIONS),
            *_section("A consumer group", CONSUMER, ConsumerGroupState, GROUP_TRANSITIONS),
            *_section("A member of a consumer group", MEMBER, MemberState, MEMBER_TRANSITIONS),
        )
    )


def _section(title: str, text: str, states: type[Enum], table: TransitionTable[Any]) -> Iterable[str]:
    yield f"## {title}\n"
    yield text
    yield "```mermaid"
    yield "stateDiagram-v2"
    yield f"    [*] --> {_name(table.initial)}"
    for (before, after), numbers in _arrows(table).items():
        yield f"    {before} --> {after}: {', '.join(map(str, numbers))}"
    yield "```\n"
    yield "| State | Meaning |"
    yield "|---|---|"
    for name, meaning in _meanings(states).items():
        yield f"| `{_name(states[name])}` | {meaning} |"
    yield "\n| | From | To | Because |"
    yield "|---|---|---|---|"
    for number, (before, after, cause) in enumerate(table.rows, 1):
        yield f"| {number} | `{_name(before)}` | `{_name(after)}` | {cause} |"
    yield ""


def _arrows(table: TransitionTable[Any]) -> dict[tuple[str, str], list[int]]:
    """One arrow for all causes that join the same two states."""
    arrows: dict[tuple[str, str], list[int]] = {}
    for number, (before, after, _) in enumerate(table.rows, 1):
        arrows.setdefault((_name(before), _name(after)), []).append(number)
    return arrows


def _name(state: Enum) -> str:
    """As Kafka writes it, also where the value is the number that records have."""
    return state.value if isinstance(state.value, str) else state.name.title().replace("_", "")


def _meanings(states: type[Enum]) -> dict[str, str]:
    """The sentences that stand below each state in its source."""
    (definition,) = ast.parse(inspect.getsource(states)).body
    assert isinstance(definition, ast.ClassDef)
    meanings = {}
    for statement, below in zip(definition.body, definition.body[1:], strict=False):
        match statement, below:
            case ast.Assign(targets=[ast.Name(id=name)]), ast.Expr(value=ast.Constant(value=str(sentence))):
                meanings[name] = " ".join(sentence.split())
    return meanings


if __name__ == "__main__":
    print(page(), end="")
