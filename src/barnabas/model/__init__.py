"""Ids, errors, configuration and the clock: the words everything else is written in; imports nothing of ours."""
