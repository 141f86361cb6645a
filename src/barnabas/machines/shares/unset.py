"""What stands for a number that nobody has given; apart, since group coordinators need it and none of the rest."""

from __future__ import annotations

from typing import Final

UNINITIALIZED: Final = -1
"""The start offset of a state that nobody has given one, and an epoch that a request does not name."""
