"""All rows, in the order in which they are measured and shown."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from bench.rows.clusters import CLUSTER_ROWS
from bench.rows.compaction import CLEANING
from bench.rows.connections import SINGLE_RECORDS, SLOW_CONNECTIONS
from bench.rows.consume import CONSUME, TOGETHER
from bench.rows.groups import COMMITS, GROUP_CONSUME, REBALANCES
from bench.rows.growth import GROWTH
from bench.rows.latency import END_TO_END
from bench.rows.pinned import PINNED
from bench.rows.pipelines import PIPELINES
from bench.rows.produce import PRODUCE, UNBATCHED
from bench.rows.quotas import GREEDY_NEIGHBOUR
from bench.rows.security import LOGINS, TLS
from bench.rows.shares import QUEUES
from bench.rows.start import EMPTY, MANY_PARTITIONS
from bench.rows.tools import PERF, TOPICS_LIST
from bench.rows.transactions import TRANSACTIONS

if TYPE_CHECKING:
    from bench.rows.row import Row

ROWS: Final[tuple[Row, ...]] = (
    *PRODUCE,
    *CONSUME,
    TOGETHER,
    END_TO_END,
    GREEDY_NEIGHBOUR,
    *TLS,
    LOGINS,
    UNBATCHED,
    SINGLE_RECORDS,
    SLOW_CONNECTIONS,
    *PINNED,
    *TRANSACTIONS,
    *REBALANCES,
    COMMITS,
    GROUP_CONSUME,
    *QUEUES,
    CLEANING,
    EMPTY,
    GROWTH,
    MANY_PARTITIONS,
    TOPICS_LIST,
    *PERF,
    *CLUSTER_ROWS,
    *PIPELINES,
)
