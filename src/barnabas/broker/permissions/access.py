"""What callers may do, as one broker knows it: the present rules, and what connections have asked of them already.

Rules are a snapshot, which is replaced as a whole (`replace`). A connection remembers answers (`Memo`, in its
`Session`): its next question of the same kind costs a look into a set. Whoever replaces the rules empties all memos,
and answers are remembered by principal: nobody gets an answer that was given by other rules, or to somebody else.

A broker of this cluster that has proved to be one needs ClusterAction, and nothing else: it acts for the cluster, and
what it forwards for clients comes in envelopes, which are judged in the client's name.
"""

from __future__ import annotations

from threading import Lock
from typing import TYPE_CHECKING, Final
from weakref import WeakSet

from barnabas.broker.permissions.audit import Question
from barnabas.broker.serving.caller import NO_MEMO, Memo
from barnabas.machines.security.acls import CLUSTER_NAME, SUPPORTED, AclResourceType, Operation, bits, canonical_host

if TYPE_CHECKING:
    from collections.abc import Iterable

    from barnabas.broker.permissions.audit import AuditLog
    from barnabas.broker.serving.caller import Caller, Session
    from barnabas.machines.security.authorizer import Authorization, Authorizer

REMEMBERED: Final = 500
"""Answers of one connection; after that it begins anew."""
LONGEST_REMEMBERED: Final = 255
"""Characters of a name whose answer is remembered: a client chooses the names."""


class Permissions:
    """The present rules of one broker, and the sessions that remember answers of theirs."""

    def __init__(self, rules: Authorizer, audit: AuditLog) -> None:
        self._rules = rules
        self._audit = audit
        self._sessions: WeakSet[Session] = WeakSet()
        self._lock = Lock()
        """Large requests are judged in threads."""

    @property
    def rules(self) -> Authorizer:
        """The present rules."""
        return self._rules

    def replace(self, rules: Authorizer) -> None:
        """Judge by other rules from now on."""
        self._rules = rules
        with self._lock:
            for session in self._sessions:
                session.memo = NO_MEMO
            self._sessions.clear()

    def of(self, caller: Caller, api: str) -> Access:
        """What a caller may do; `api` is what it asks for, for the audit log."""
        return Access(self, caller, api)

    def memo(self, session: Session) -> Memo:
        """Where a session's answers are remembered."""
        memo = session.memo
        if memo is NO_MEMO or memo.is_full(REMEMBERED):
            with self._lock:
                memo = session.memo = Memo()
                self._sessions.add(session)
        return memo

    def decide(self, question: Question, session: Session) -> Authorization:
        """The answer to a question, remembered or decided now.

        Only what is allowed is remembered: a client that may do nothing takes no memory, whatever it asks for.

        In a thread, the rules may be replaced meanwhile. The memo is found before it is known that they were not: so it
        is emptied later, or it belongs to the new rules and nothing of the old ones is put into it.
        """
        principal, host, operation, resource_type, name, _, _ = question
        key = principal, operation, resource_type, name
        decision: Authorization | None = session.memo.decisions.get(key)
        if decision is None:
            rules = self._rules
            decision = rules.decide(principal, host, operation, resource_type, name)
            if decision and len(name) <= LONGEST_REMEMBERED:
                memo = self.memo(session)
                if rules is self._rules:
                    memo.decisions[key] = decision
        return decision

    def log(self, question: Question, decision: Authorization) -> None:
        """Write a decision to the audit log."""
        if decision:
            self._audit.allowed(question, decision)
        else:
            self._audit.denied(question, decision)


class Access:
    """What one caller may do, asked while one of its requests is served."""

    __slots__ = ("_api", "_host", "_permissions", "_session", "principal")

    def __init__(self, permissions: Permissions, caller: Caller, api: str) -> None:
        self._permissions = permissions
        self._session = caller.session
        self._api = api
        self._host = canonical_host(caller.address[0])
        self.principal = caller.principal

    def allows(self, operation: Operation, resource_type: AclResourceType, name: str, *, quiet: bool = False) -> bool:
        """Whether the caller may do this; a `quiet` question is not logged if the answer is no."""
        question = Question(self.principal, self._host, operation, resource_type, name, self._api)
        decision = self._permissions.decide(question, self._session)
        if decision or not quiet:
            self._permissions.log(question, decision)
        return decision.allowed

    def allows_topic(self, operation: Operation, name: str, *, quiet: bool = False) -> bool:
        """Whether the caller may do this to a topic."""
        return self.allows(operation, AclResourceType.TOPIC, name, quiet=quiet)

    def allows_group(self, operation: Operation, name: str, *, quiet: bool = False) -> bool:
        """Whether the caller may do this to a group."""
        return self.allows(operation, AclResourceType.GROUP, name, quiet=quiet)

    def allows_cluster(self, operation: Operation, *, quiet: bool = False) -> bool:
        """Whether the caller may do this to the cluster."""
        return self.allows(operation, AclResourceType.CLUSTER, CLUSTER_NAME, quiet=quiet)

    def allows_some(self, operation: Operation, resource_type: AclResourceType) -> bool:
        """Whether the caller may do this to at least one resource of a type."""
        decision = self._permissions.rules.decide_for_some(self.principal, self._host, operation, resource_type)
        question = Question(self.principal, self._host, operation, resource_type, "", self._api, is_any=True)
        self._permissions.log(question, decision)
        return decision.allowed

    def topics(self, operation: Operation, names: Iterable[str], *, quiet: bool = False) -> set[str]:
        """Of these topics, those to which the caller may do this."""
        return {name for name in dict.fromkeys(names) if self.allows_topic(operation, name, quiet=quiet)}

    def operations(self, resource_type: AclResourceType, name: str) -> int:
        """Everything that the caller may do to a resource, as a bit field."""
        decide, session = self._permissions.decide, self._session
        return bits(
            operation
            for operation in SUPPORTED[resource_type]
            if decide(Question(self.principal, self._host, operation, resource_type, name, self._api), session)
        )

    def cluster_operations(self) -> int:
        """Everything that the caller may do to the cluster, as a bit field; nothing if it may not describe it."""
        if not self.allows_cluster(Operation.DESCRIBE):
            return 0
        return self.operations(AclResourceType.CLUSTER, CLUSTER_NAME)
