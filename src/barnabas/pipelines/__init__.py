"""Topics to tables on Spark: a source and a sink for PySpark, and loads that keep offsets with their results.

    from barnabas.pipelines import spark_session

    spark = spark_session()
    spark.read.format("barnabas").option("kafka.bootstrap.servers", "localhost:9092").option("subscribe", "orders")

Importing this loads neither PySpark nor pyarrow; a name is loaded with its module when it is first used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from barnabas.pipelines.errors import PipelineError as PipelineError
    from barnabas.pipelines.loading.api import load as load
    from barnabas.pipelines.spark.session import register as register
    from barnabas.pipelines.spark.session import spark_session as spark_session

_HOMES: Final = {
    "PipelineError": "errors",
    "load": "loading.api",
    "register": "spark.session",
    "spark_session": "spark.session",
}
"""The module of each public name."""

__all__ = sorted(_HOMES)


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
