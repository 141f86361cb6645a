"""How log lines look, of a broker and of pipelines."""

from __future__ import annotations

from typing import Final

LOG_FORMAT: Final = "%(asctime)s %(levelname)s %(name)s: %(message)s"
