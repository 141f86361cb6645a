"""Files by Hadoop's way to them, which is Spark's: those of a checkpoint, and those of a source."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.pipelines.runner.queries.hadoop_files import HadoopFolder
from barnabas.pipelines.runner.queries.views import make_views
from barnabas.pipelines.spec import FileSource, Pipeline, TableSink
from barnabas.pipelines.spec.flows import flow_to

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession


def test_files_are_read_and_listed_and_may_be_missing(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "commits").mkdir()
    (tmp_path / "commits" / "7").write_text("v1\n{}")
    (tmp_path / "meta%20data").write_text("Größe\n", encoding="utf-8")
    folder = HadoopFolder(spark, f"file://{tmp_path}/")
    assert folder.text("meta%20data") == "Größe\n"
    assert folder.text("metadata") is None
    assert folder.names("commits") == ["7"]
    assert folder.names("offsets") == []


def test_a_path_of_a_source_is_one_of_this_machine_whatever_spark_takes_paths_for(
    spark: SparkSession, tmp_path: Path
) -> None:
    spark.conf.set("fs.defaultFS", "hdfs://localhost:1")
    (tmp_path / "customers.csv").write_text("1,NL\n")
    source = FileSource(name="customers", path=str(tmp_path / "*.csv"), format="csv", schema="id INT, country STRING")
    sink = TableSink(name="all", reads="customers", table="tables/all")
    pipeline = Pipeline(name="p", kafka={}, sources=[source], sinks=[sink])
    found = make_views(spark, pipeline, sink, flow_to(pipeline, sink), {}).collect()
    assert [tuple(row) for row in found] == [(1, "NL")]
