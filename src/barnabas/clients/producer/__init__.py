"""Producing: records in, futures out, in transactions where asked for."""

from barnabas.clients.producer.producer import Producer

__all__ = ["Producer"]
