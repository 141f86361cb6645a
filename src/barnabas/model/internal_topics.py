"""Topics of Kafka's own, in which coordinators keep their state: clients may not write to them."""

from __future__ import annotations

from typing import Final

CONSUMER_OFFSETS: Final = "__consumer_offsets"
TRANSACTION_STATE: Final = "__transaction_state"
SHARE_GROUP_STATE: Final = "__share_group_state"
PIPELINE_METRICS: Final = "_barnabas_metrics"
"""Not Kafka's: where pipelines and loads report, unless they are given another topic. Any client may write to it."""
INTERNAL_TOPICS: Final = frozenset({CONSUMER_OFFSETS, TRANSACTION_STATE, SHARE_GROUP_STATE})
