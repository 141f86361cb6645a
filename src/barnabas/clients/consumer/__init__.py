"""Consuming: topics as an iterator, with offsets that are committed for what the program has come back from."""

from barnabas.clients.consumer.consumer import Consumer

__all__ = ["Consumer"]
