"""Committed offsets: how far groups have read, and when that is forgotten."""
