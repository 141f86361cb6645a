"""Spark's errors have the texts by which `spark.error_texts` recognises them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from barnabas.pipelines.errors import DataLost
from barnabas.pipelines.spark.error_texts import analysis_error, bad_value, is_refused, own_error, python_error

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from pyspark.sql import SparkSession


def text_of(action: Callable[[], object]) -> str:
    """What the error of an action says, as a failure of a query is told: with its class."""
    with pytest.raises(Exception) as caught:
        action()
    return f"{caught.type.__name__}: {caught.value}"


def failing(spark: SparkSession, error: type[Exception]) -> Callable[[], object]:
    """A task that raises an error in Python."""

    def fail(batches: Iterable[Any]) -> Iterator[Any]:
        yield from batches
        raise error("what happened. What to do")

    return spark.range(1).mapInArrow(fail, "id BIGINT").collect


def test_an_error_of_ours_in_a_task(spark: SparkSession) -> None:
    found = own_error(text_of(failing(spark, DataLost)))
    assert found == ("pipelines.errors", "DataLost", "what happened. What to do")


def test_an_error_of_somebodys_python_in_a_task(spark: SparkSession) -> None:
    text = text_of(failing(spark, ZeroDivisionError))
    assert own_error(text) is None
    assert python_error(text) == "ZeroDivisionError: what happened. What to do"
    assert not is_refused(text)


def test_a_value_that_sql_cannot_compute_with(spark: SparkSession) -> None:
    text = text_of(spark.sql("SELECT CAST(text AS INT) FROM VALUES ('x') AS t(text)").collect)
    assert (bad_value(text) or "").startswith('The value \'x\' of the type "STRING" cannot be cast to "INT"')


def test_a_query_that_spark_does_not_understand(spark: SparkSession) -> None:
    text = text_of(lambda: spark.sql("SELECT nothing FROM VALUES (1) AS t(number)"))
    assert is_refused(text)
    said = analysis_error(text)
    assert "`nothing` cannot be resolved" in said
    assert "SQLSTATE" in said
    assert "line 1 pos" not in said
    assert "Project" not in said, "the plan is left out"


def test_a_query_that_spark_cannot_parse(spark: SparkSession) -> None:
    assert is_refused(text_of(lambda: spark.sql("SELEC 1")))


def test_a_requirement_of_spark_that_is_not_met(spark: SparkSession) -> None:
    assert is_refused(text_of(lambda: spark.range(1).sample(2.0).collect()))
