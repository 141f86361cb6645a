"""Segments: files of batches with their indexes, and the list of them that makes a log."""
