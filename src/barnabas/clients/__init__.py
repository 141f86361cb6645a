"""Thin Python clients over confluent-kafka."""
