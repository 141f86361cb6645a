"""Which failures are worth another try."""

from __future__ import annotations

import pytest

from barnabas.clients.errors import BrokerUnreachable
from barnabas.model.remedies import Remedy, RemedyKind
from barnabas.pipelines.errors import DataLost, ReadStalled
from barnabas.pipelines.runner.failures import Failure, classify_failure
from barnabas.pipelines.tables.errors import Fenced, ForeignTable, TableUnreachable

IN_SPARK = """[STREAM_FAILED] Query [id = 1] terminated with exception: Job aborted
Traceback (most recent call last):
  File "worker.py", line 1, in main
{}: what happened. What to do
\tat org.apache.spark.api.python.BasePythonRunner
"""


@pytest.mark.parametrize(
    ("error", "passes"),
    [
        (Fenced("what happened. What to do"), False),
        (DataLost("what happened. What to do"), False),
        (TableUnreachable("what happened. What to do"), True),
        (ReadStalled("what happened. What to do"), True),
        (BrokerUnreachable("what happened. What to do"), True),
        (RuntimeError(IN_SPARK.format("barnabas.pipelines.errors.DataLost")), False),
        (RuntimeError(IN_SPARK.format("barnabas.pipelines.tables.errors.TopicReplaced")), False),
        (RuntimeError(IN_SPARK.format("barnabas.pipelines.errors.NotWritten")), True),
        (RuntimeError(IN_SPARK.format("barnabas.pipelines.errors.ReplayChecked")), True),
        (RuntimeError(IN_SPARK.format("barnabas.pipelines.errors.NoPosition")), True),
        (RuntimeError(IN_SPARK.format("barnabas.pipelines.errors.InvalidOption")), False),
        (RuntimeError(IN_SPARK.format("barnabas.clients.errors.RequestRefused")), True),
    ],
)
def test_what_pipelines_refuse_needs_somebody_and_the_rest_passes(error: Exception, passes: bool) -> None:
    found = classify_failure(error)
    assert (found.text, found.passes) == ("what happened. What to do", passes)


def test_what_can_be_done_is_kept() -> None:
    remedy = Remedy(RemedyKind.USE_PIPELINE_NAME, "p")
    assert classify_failure(ForeignTable("not ours").with_remedy(remedy)).remedy == remedy


def test_other_failures_are_told_by_their_first_line_and_pass() -> None:
    assert classify_failure(OSError("\n  Connection reset  \nmore")) == Failure("Connection reset", True)
    assert classify_failure(KeyboardInterrupt()) == Failure("KeyboardInterrupt", True)


def test_a_mistake_in_somebodys_function_is_told_as_python_tells_it() -> None:
    text = IN_SPARK.format("ZeroDivisionError") + "\nCaused by: org.apache.spark.api.python.PythonException: Traceback"
    assert classify_failure(RuntimeError(text)).text == "ZeroDivisionError: what happened. What to do"
    java = IN_SPARK.format("org.apache.spark.SparkException")
    assert classify_failure(RuntimeError(java)).text.startswith("[STREAM_FAILED] Query")


@pytest.mark.parametrize(
    "text",
    [
        "org.apache.spark.sql.AnalysisException: [UNRESOLVED_COLUMN]",
        "[STREAM_FAILED] Query [id = 1] terminated with exception: requirement failed: no Update mode",
    ],
)
def test_what_spark_refuses_does_not_pass(text: str) -> None:
    assert not classify_failure(RuntimeError(text)).passes


CAST = 'The value \'x\' of the type "STRING" cannot be cast to "INT" because it is malformed. Use `try_cast` instead.'


@pytest.mark.parametrize(
    "text",
    [
        f"[STREAM_FAILED] Query [id = 1] terminated with exception: Job aborted: [CAST_INVALID_INPUT] {CAST} "
        "SQLSTATE: 22018\n== SQL (line 1, position 8) ==\n SQLSTATE: XXKST",
        IN_SPARK.format(f"pyspark.errors.NumberFormatException: [CAST_INVALID_INPUT] {CAST} SQLSTATE: 22018\nx"),
    ],
)
def test_a_value_that_sql_cannot_compute_with_is_told_and_does_not_pass(text: str) -> None:
    assert classify_failure(RuntimeError(text)) == Failure(CAST, passes=False)
