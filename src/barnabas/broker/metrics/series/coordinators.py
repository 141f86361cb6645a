"""Transactions, queues and fetch sessions: what this broker keeps for its clients, beside groups."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from barnabas.broker.metrics.exposition import COUNTER, GAUGE, Family, counter, escape, gauge, labels
from barnabas.machines.transactions.states import TransactionState

if TYPE_CHECKING:
    from collections.abc import Sequence

    from barnabas.broker.context import BrokerContext
    from barnabas.broker.metrics.scrape import Pace

DEAD_LETTERS: Final = (
    ("s", "Dead letters of a share group that are stored."),
    ("_batches", "Batches of dead letters that were sent, for the first time or again."),
    ("_failures", "Attempts to write dead letters that failed."),
    ("s_missing", "Offsets that were given up and have no dead letter, since there is no message."),
)


class CoordinatorSeries:
    """Series of what is coordinated here."""

    def __init__(self, broker: BrokerContext, most_groups: int) -> None:
        self._broker = broker
        self._most_groups = most_groups

    async def collect(self, pace: Pace) -> Sequence[Family]:
        """What there is now."""
        sessions = self._broker.fetch_sessions
        cache = "kafka_server_fetchsessioncache_"
        return [
            await self._transactions(pace),
            *await self._share_partitions(pace),
            *self._dead_letters(),
            self._loading(),
            gauge(f"{cache}numincrementalfetchsessions", "Fetch sessions that this broker keeps.", len(sessions)),
            gauge(
                f"{cache}numincrementalfetchpartitionscached",
                "Partitions in the fetch sessions of this broker.",
                sessions.partition_count,
            ),
            counter(
                f"{cache}incrementalfetchsessionevictions",
                "Fetch sessions that were ended to make room for others.",
                sessions.evictions,
            ),
        ]

    async def _transactions(self, pace: Pace) -> Family:
        """Transactional ids that are coordinated here, by what they are doing."""
        states: Counter[int] = Counter()
        for _, machine in self._broker.transactions.runtime.machines():
            for value in list(machine.transactions.values()):
                states[value.transaction_status] += 1
                if pace.is_over:
                    await pace.rest()
        family = Family("barnabas_transactions", GAUGE, "Transactional ids, by the state of their transactions.")
        for state in TransactionState:
            family.add(states[state], labels(state=state.label))
        return family

    async def _share_partitions(self, pace: Pace) -> Sequence[Family]:
        """What share groups have still to deal with, of the partitions that are led here, as far as there is room."""
        left = Family("barnabas_sharegroup_lag", GAUGE, "Messages that a share group has not dealt with.")
        flying = Family("barnabas_sharegroup_in_flight", GAUGE, "Messages that were delivered and are not all done.")
        hosted_here = self._broker.shares.hosted()
        for hosted in hosted_here[: self._most_groups]:
            machine, partition = hosted.machine, hosted.partition
            if machine is None:
                continue
            topic, index = partition.tp
            label = f'{{group="{escape(hosted.key.group_id)}",topic="{escape(topic)}",partition="{index}"}}'
            behind = partition.leader.high_watermark - machine.start_offset - machine.complete_count
            left.add(max(behind, 0), label)
            flying.add(machine.in_flight, label)
            if pace.is_over:
                await pace.rest()
        omitted = gauge(
            "barnabas_metrics_omitted_share_partitions",
            "Partitions of share groups without series of their own, because there are more than metrics.max.groups.",
            max(len(hosted_here) - self._most_groups, 0),
        )
        return left, flying, omitted

    def _dead_letters(self) -> Sequence[Family]:
        """What became of messages that share groups gave up."""
        families = [Family(f"barnabas_sharegroup_dead_letter{name}", COUNTER, text) for name, text in DEAD_LETTERS]
        for group_id, counts in list(self._broker.shares.dead_letter_counts().items())[: self._most_groups]:
            label = labels(group=group_id)
            values = counts.records, counts.produces, counts.failures, counts.missing
            for family, value in zip(families, values, strict=True):
                family.add(value, label)
        return families

    def _loading(self) -> Family:
        """Coordinators that are being read from their logs, and are not available meanwhile."""
        family = Family("barnabas_coordinators_loading", GAUGE, "Coordinators that are not loaded yet, by their topic.")
        broker = self._broker
        for runtime in (broker.groups.runtime, broker.transactions.runtime, broker.share_coordinators.runtime):
            family.add(sum(shard.machine is None for shard in runtime.shards()), labels(topic=runtime.topic))
        return family
