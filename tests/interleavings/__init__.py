"""Every order of two: a pair of operations on one log, run step by step through all ways in which two threads cross."""
