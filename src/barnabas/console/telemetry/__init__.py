"""Metrics that clients push (KIP-714), as brokers send them on: read, kept within bounds, shown."""
