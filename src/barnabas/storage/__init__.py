"""Bytes on disk, in Apache Kafka's own file format."""
