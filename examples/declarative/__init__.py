"""Orders from a topic into tables by Spark Declarative Pipelines; `python -m examples.declarative` runs it."""
