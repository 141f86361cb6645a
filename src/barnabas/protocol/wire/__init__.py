"""Frames, headers, bounds, and messages of any version by their schemas."""
