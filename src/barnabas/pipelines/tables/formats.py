"""The names of table formats, apart from the libraries that a format needs."""

from __future__ import annotations

from typing import Final

FORMATS: Final = ("parquet", "delta", "iceberg")
