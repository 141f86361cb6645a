"""Topics as data frames: batches, streams, and what a task reads."""
