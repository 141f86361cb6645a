"""Pipelines that run: each sink is a query of Spark Structured Streaming, all of them in one Spark application."""
