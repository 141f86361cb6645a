"""Barnabas: a message broker in Python that every Kafka client uses unmodified."""

__version__ = "0.1.0"
