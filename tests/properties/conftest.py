"""Hypothesis for all property tests: no deadline and no pace, because a busy machine is not a failure."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

settings.register_profile("barnabas", deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True)
settings.load_profile("barnabas")
