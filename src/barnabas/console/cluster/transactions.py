"""Transactional ids of all coordinators, each of which is asked for its own at the same time as the others."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from barnabas.clients.errors import BrokerUnreachable
from barnabas.model.base_error import BarnabasError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from barnabas.clients.admin.cluster_admin import ClusterAdmin
    from barnabas.clients.admin.transactions import Transaction
    from barnabas.clients.wire.connection import Node

MOST: Final = 500
"""Transactional ids of a coordinator that are described; there may be many, of which few are at work."""
AT_WORK: Final = ("Ongoing", "PrepareCommit", "PrepareAbort", "PrepareEpochFence")


class ListedTransactions(NamedTuple):
    """How many are known, those that were described, and brokers that did not tell of theirs."""

    known: int
    transactions: tuple[Transaction, ...]
    silent: tuple[int, ...] = ()


def transaction_question(node: Node) -> Callable[[ClusterAdmin], ListedTransactions]:
    """To one broker: what it coordinates, that which is at work in full before the rest."""

    def ask(cluster: ClusterAdmin) -> ListedTransactions:
        listed = cluster.transactions.listing(at=node)
        working = [each.transactional_id for each in listed if each.state in AT_WORK][:MOST]
        rest = [each.transactional_id for each in listed if each.state not in AT_WORK][: MOST - len(working)]
        return ListedTransactions(len(listed), tuple(cluster.transactions.describe([*working, *rest]).values()))

    return ask


def join_transactions(
    answers: Mapping[Node, ListedTransactions | BarnabasError], silent: Mapping[int, str]
) -> ListedTransactions:
    """Those of all brokers that answered; raises what one of them refused with. `silent` were not asked."""
    known = 0
    found: list[Transaction] = []
    unanswered = set(silent)
    for node, answer in answers.items():
        if isinstance(answer, BrokerUnreachable):
            unanswered.add(node.id)
        elif isinstance(answer, BarnabasError):
            raise answer
        else:
            known += answer.known
            found += answer.transactions
    working = sorted(found, key=lambda each: (each.state not in AT_WORK, each.transactional_id))
    return ListedTransactions(known, tuple(working[:MOST]), tuple(sorted(unanswered)))
