"""Spark's settings where it is our own: it speaks up only when something went wrong, and starts fast."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

QUIET: Final[Mapping[str, object]] = {
    "spark.ui.showConsoleProgress": False,
    "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={Path(__file__).with_name('log4j2.properties')}",
}
SHORT_LIVED: Final = "-XX:+IgnoreUnrecognizedVMOptions -XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""Java's options for a process that has little to do and lives for seconds: it does not compile what it runs for speed,
which takes more time than it saves, and starts no threads that collect garbage at once.
"""
