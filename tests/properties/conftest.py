"""Hypothesis for all property tests: no deadline, because a busy machine is not a failure."""

from __future__ import annotations

from hypothesis import settings

settings.register_profile("barnabas", deadline=None)
settings.load_profile("barnabas")
