"""What Spark says about pipelines, without running them: every view is made, and every column and type looked at."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.pipelines.runner.views import make_views
from barnabas.pipelines.session import register, spark_session
from barnabas.pipelines.spec.flows import flow_to

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import SparkSession

    from barnabas.pipelines.spec.model import Pipeline


def analyse(pipelines: Sequence[Pipeline], spark: SparkSession | None = None) -> dict[str, str]:
    """The columns that each query writes, as DDL. Raises SpecError with what Spark has against a step."""
    session = spark or spark_session("check", master="local[1]", config={"spark.log.level": "ERROR"})
    try:
        return {
            pipeline.query(sink): _columns(session, pipeline, index)
            for pipeline in pipelines
            for index, sink in enumerate(pipeline.sinks)
        }
    finally:
        if spark is None:
            session.stop()


def _columns(spark: SparkSession, pipeline: Pipeline, index: int) -> str:
    sink = pipeline.sinks[index]
    flow = flow_to(pipeline, sink)
    own = spark.newSession()
    register(own)
    frame = make_views(own, pipeline, sink, flow, {source.name: source.start for source in flow.topics})
    return ", ".join(f"{field.name} {field.dataType.simpleString().upper()}" for field in frame.schema)
