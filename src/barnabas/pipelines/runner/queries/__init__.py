"""One sink of a pipeline as a query of Spark Structured Streaming: its views, its batches, its table."""
