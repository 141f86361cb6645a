"""The columns of a record in Spark's words, the same as those of Spark's own Kafka source; `rows` has them in Arrow's.

They stand alone, so that a process of Spark's that only asks for the schema need not load pyarrow.
"""

from __future__ import annotations

from typing import Final

RECORD_DDL: Final = (
    "key BINARY, value BINARY, topic STRING, partition INT, offset BIGINT, timestamp TIMESTAMP, timestampType INT"
)
HEADERS_DDL: Final = "headers ARRAY<STRUCT<key: STRING, value: BINARY>>"


def record_ddl(*, include_headers: bool = False) -> str:
    """The schema of rows."""
    return f"{RECORD_DDL}, {HEADERS_DDL}" if include_headers else RECORD_DDL
