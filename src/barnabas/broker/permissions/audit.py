"""The audit log: one line of JSON for each decision about a permission, on the logger `barnabas.audit`.

A denial is logged at INFO, which is on by default; a permission at DEBUG. Questions that only find out what to show
(which topics are listed, which operations are told) are not logged. Neither is a Produce or Fetch of topics that its
connection was allowed to use before, under the same rules: that is a look into a set, and no decision.

A client that is refused may ask again without end. The same denial is logged once in ten seconds, and all of them
together at most a hundred times a second; the next line says how many were left out.
"""

from __future__ import annotations

import json
import logging
from threading import Lock
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

    from barnabas.machines.security.acls import AclResourceType, Operation
    from barnabas.machines.security.authorizer import Authorization

logger = logging.getLogger("barnabas.audit")

REPEAT_SECONDS: Final = 10.0
LINES_PER_SECOND: Final = 100
LONGEST_LOGGED: Final = 255
"""Characters of a name that are logged: a client chooses the names."""
REMEMBERED: Final = 1000
"""Denials whose repetitions are left out; others that come between make a denial be logged again."""


class Question(NamedTuple):
    """What was asked of the rules."""

    principal: str
    host: str
    operation: Operation
    resource_type: AclResourceType
    name: str
    api: str
    is_any: bool = False
    """Whether it was asked for at least one resource of the type, which has no name then."""

    @property
    def resource(self) -> str:
        """What the log calls it: no name of a resource looks like that of any."""
        label = self.resource_type.label
        return f"any {label}" if self.is_any else f"{label}:{self.name}"


class AuditLog:
    """What was allowed and denied by one broker. `now` gives seconds that never go back."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._logged: dict[Question, float] = {}
        """When each denial was logged last, the longest ago first."""
        self._second = 0.0
        self._lines = 0
        """Lines since `_second` began."""
        self._left_out = 0
        self._lock = Lock()
        """Large requests are judged in threads."""

    def allowed(self, question: Question, decision: Authorization) -> None:
        """Log what was allowed."""
        if logger.isEnabledFor(logging.DEBUG):
            logger.debug("%s", _line(question, decision))

    def denied(self, question: Question, decision: Authorization) -> None:
        """Log a denial, unless the same was logged a moment ago."""
        if len(question.name) > LONGEST_LOGGED:
            question = question._replace(name=f"{question.name[:LONGEST_LOGGED]}...")
        with self._lock:
            self._denied(question, decision)

    def _denied(self, question: Question, decision: Authorization) -> None:
        now = self._now()
        last = self._logged.get(question)
        if last is not None and now - last < REPEAT_SECONDS:
            self._left_out += 1
            return
        if now - self._second >= 1.0:
            self._second, self._lines = now, 0
        if self._lines >= LINES_PER_SECOND:
            self._left_out += 1
            return
        self._lines += 1
        self._logged.pop(question, None)
        self._logged[question] = now
        if len(self._logged) > REMEMBERED:
            del self._logged[next(iter(self._logged))]
        logger.info("%s", _line(question, decision, self._left_out))
        self._left_out = 0


def _line(question: Question, decision: Authorization, left_out: int = 0) -> str:
    line: dict[str, object] = {
        "principal": question.principal,
        "host": question.host,
        "operation": question.operation.label,
        "resource": question.resource,
        "api": question.api,
        "decision": "allowed" if decision else "denied",
        "rule": str(decision.rule),
    }
    if left_out:
        line["left_out"] = left_out
    return json.dumps(line)
