"""The record batch format (magic 2): headers, records, compression and control batches."""
