"""Data frames to topics: at least once, or exactly once by notes of what was written."""
