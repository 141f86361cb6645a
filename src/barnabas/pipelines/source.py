"""The data source by its public name: users' files and `pyspark_barnabas.py` import it from here."""

from barnabas.pipelines.spark.source import BarnabasSource

__all__ = ["BarnabasSource"]
