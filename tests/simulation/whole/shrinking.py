"""Makes the plan of a world that breaks a rule smaller, as long as the world still breaks one.

Fewer faults, fewer clients, less time: each is tried on its own, again and again, until nothing can be left out. A
smaller world is another world, since chance falls differently: so each smaller plan is tried with the luck of the last
one that broke a rule, and with some other luck. What it breaks need not be the same rule.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from tests.simulation.whole.runner import run_plan

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.simulation.whole.plan import Plan

MOST_TRIES: Final = 150
LUCKS: Final = 3
"""How often a smaller plan is tried."""
CLIENTS: Final = (
    "admins",
    "scanners",
    "workers",
    "loose",
    "keyed",
    "classics",
    "transactors",
    "committers",
    "members",
    "consumers",
    "producers",
)


def shrink(plan: Plan, bug: str | None = None, most_tries: int = MOST_TRIES) -> Plan:
    """The smallest plan found whose world breaks a rule."""
    left, begin = most_tries, 0
    while True:
        smaller = list(_smaller(plan))
        for index in (*range(begin, len(smaller)), *range(min(begin, len(smaller)))):
            for luck in range(LUCKS):
                if not left:
                    return plan
                left -= 1
                found = replace(smaller[index], luck=plan.luck + luck)
                if run_plan(found, bug=bug).violations:
                    break
            else:
                continue
            plan, begin = found, index  # what had to stay before mostly has to stay now: go on from here
            break
        else:
            return plan


def size(plan: Plan) -> tuple[int, float]:
    """What there is in a plan: faults and clients, then how long it lasts."""
    return len(plan.faults) + sum(getattr(plan, name) for name in CLIENTS), plan.seconds


def _smaller(plan: Plan) -> Iterator[Plan]:
    """Plans with one thing less, those with much less first."""
    faults = plan.faults
    if len(faults) > 2:
        half = len(faults) // 2
        yield replace(plan, faults=faults[:half])
        yield replace(plan, faults=faults[half:])
    for index in range(len(faults)):
        yield replace(plan, faults=faults[:index] + faults[index + 1 :])
    for name in CLIENTS:
        if getattr(plan, name):
            yield _with(plan, name, 0)
            if getattr(plan, name) > 1:
                yield _with(plan, name, getattr(plan, name) - 1)
    if plan.partitions > 1:
        yield replace(plan, partitions=1)
    last = max((fault.at + 2.0 for fault in faults), default=8.0)
    if plan.seconds > last + 1:
        yield replace(plan, seconds=last)


def _with(plan: Plan, name: str, count: int) -> Plan:
    changed: Any = {name: count}
    return replace(plan, **changed)
