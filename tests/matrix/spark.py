"""Spark as a client of the matrix: `format("barnabas")` writes a record and reads it back, with Java's options.

All cells share one session, and so its tasks; a cell that waits for a refusal holds one of them.
"""

from __future__ import annotations

import uuid
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Final

from pyspark.sql.functions import col

from barnabas.pipelines import spark_session
from tests.matrix.broker import TOPIC
from tests.matrix.cells import IN, LOGIN, OUT, TLS
from tests.matrix.java_properties import java_properties
from tests.support.spark import SETTINGS

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyspark.sql import SparkSession

    from tests.matrix.cells import Cell

AT_ONCE: Final = 8
QUIET: Final = {"spark.log.level": "OFF", "spark.ui.showConsoleProgress": False}
PATIENCE: Final = {"kafka.delivery.timeout.ms": "20000", "kafka.request.timeout.ms": "10000", "kafka.linger.ms": "0"}
"""A broker that wants a certificate ends the connection without a word; a sender would try again for minutes."""


def spark(cells: Iterable[Cell]) -> dict[str, str]:
    """PySpark; a token is not among the options of Java's clients, and a batch is over before a session is."""
    tried = [cell for cell in cells if cell.mechanism != "OAUTHBEARER" and not cell.seconds]
    session = spark_session("matrix", master=f"local[{AT_ONCE}]", config=SETTINGS | QUIET)
    try:
        with ThreadPoolExecutor(AT_ONCE) as pool:
            ended = pool.map(lambda cell: _tried(session, cell), tried)
            return {cell.name: outcome for cell, outcome in zip(tried, ended, strict=True)}
    finally:
        session.stop()


def _tried(session: SparkSession, cell: Cell) -> str:
    options = dict(f"kafka.{each}".split("=", 1) for each in java_properties(cell))
    value = uuid.uuid4().hex
    try:
        rows = session.createDataFrame([(value,)], "value string").coalesce(1)
        rows.write.format("barnabas").mode("append").options(**options, **PATIENCE, topic=TOPIC).save()
        topic = session.read.format("barnabas").options(**options, subscribe=TOPIC).load()
        found = topic.where(col("value").cast("string") == value).count()
    except Exception as error:  # whatever Spark and py4j make of it
        return f"{_reason(str(error))}\t{str(error)[:300]}"
    return IN if found == 1 else f"{OUT}\tthe record was read {found} times"


def _reason(said: str) -> str:
    if "certificate verify failed" in said or "SSL" in said:
        return TLS
    return LOGIN if "uthentication" in said else OUT
