"""Bytes to messages and back: the wire protocol and record batches, with no I/O."""
