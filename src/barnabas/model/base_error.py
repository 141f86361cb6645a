"""What all errors of Barnabas are.

It stands alone, without Kafka's error codes: those come with kio, which loads Hypothesis wherever that is installed,
11 MB in each of Spark's Python processes.
"""

from __future__ import annotations


class BarnabasError(Exception):
    """Anything that Barnabas raises on purpose."""
