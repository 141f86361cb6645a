"""Settings of Spark for tests: small, quiet, on this machine alone."""

from __future__ import annotations

from typing import Final

SETTINGS: Final[dict[str, object]] = {
    "spark.ui.enabled": False,
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.sql.shuffle.partitions": 2,
    "spark.sql.session.timeZone": "UTC",
    "spark.driver.memory": "1g",
    "spark.log.level": "ERROR",
}
