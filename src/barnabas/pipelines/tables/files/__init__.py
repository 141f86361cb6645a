"""Parquet files of all table formats: where they go, how they are written, and how small ones are merged."""
