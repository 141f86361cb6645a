"""Kafka's scripts by their names, done by Barnabas: `barnabas shims DIR` writes them."""
