"""Dead letters of share groups (KIP-1191): the headers by which a record of such a topic says what it stands for.

Names and words are those of Apache Kafka 4.4. Values are text, numbers as well.
"""

from __future__ import annotations

from enum import Enum
from typing import Final

PREFIX: Final = "__dlq."
"""Of the headers' names."""
TOPIC: Final = "__dlq.errors.topic"
PARTITION: Final = "__dlq.errors.partition"
OFFSET: Final = "__dlq.errors.offset"
"""Where the message is."""
GROUP: Final = "__dlq.errors.group"
"""The share group that gave it up."""
DELIVERY_COUNT: Final = "__dlq.errors.delivery.count"
MESSAGE: Final = "__dlq.errors.message"
"""Why it was given up, for people."""


class GivenUp(Enum):
    """Why a group gives a message up; the value is what the header says."""

    REJECTED = "Offset rejected by client."
    DELIVERIES_USED_UP = "Offset delivery count exceeded the threshold."
