"""Spark's side: the session, and the data source `barnabas` that reads and writes topics."""
