"""Topics to tables on Spark: a source and a sink for PySpark, and loads that keep offsets with their results."""
