"""Spark's settings for sessions of our own, in which it speaks up only when something went wrong."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

QUIET: Final[Mapping[str, object]] = {
    "spark.ui.showConsoleProgress": False,
    "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={Path(__file__).with_name('log4j2.properties')}",
}
