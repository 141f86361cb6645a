"""Where optional libraries come in: imported when first needed, and a clear word when they are missing.

Importing `barnabas` or any module of the clients loads none of them: confluent-kafka alone takes 60 ms.
"""

from __future__ import annotations

import importlib
from typing import Any

from barnabas.clients.errors import LibraryMissing


def load(module: str, extra: str) -> Any:
    """The module, or LibraryMissing with the line that installs it."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        package = "protobuf" if extra == "protobuf" else module.partition(".")[0].replace("_", "-")
        raise LibraryMissing(
            f"this needs {package}, which is not installed ({error}); in a checkout of Barnabas, install it with: "
            f"pip install '.[{extra}]'"
        ) from error


def load_kafka() -> Any:
    """The package confluent_kafka."""
    return load("confluent_kafka", "clients")
