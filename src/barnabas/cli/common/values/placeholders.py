"""Where values come from that stand elsewhere (`model/config/placeholders`): files, folders, the environment."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

from barnabas.model.config.placeholders import DIRECTORY, ENVIRONMENT
from barnabas.model.errors import ConfigError

if TYPE_CHECKING:
    from barnabas.model.config.placeholders import Provider


def find_value(provider: Provider, path: str, key: str) -> str | None:
    """The value of a key: a line of a properties file, a file of a folder, or a variable. Raises ConfigError."""
    if provider.kind == ENVIRONMENT:
        allowed = provider.parameters.get("allowlist.pattern")
        return os.environ.get(key) if allowed is None or re.fullmatch(allowed, key) else None
    try:
        if provider.kind == DIRECTORY:
            return _allowed(provider, Path(path) / Path(key).name).read_text(encoding="utf-8")
        return _properties(_allowed(provider, Path(path))).get(key)
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not text in UTF-8"
        raise ConfigError(f"${{{provider.name}:{path}:{key}}} cannot be read: {reason}") from None


def _properties(file: Path) -> dict[str, str]:
    from barnabas.cli.common.values.files import read_properties

    return read_properties(file)


def _allowed(provider: Provider, path: Path) -> Path:
    """The path, as it is without links; raises ConfigError unless allowed.paths has it or a folder above it."""
    allowed = [part.strip() for part in provider.parameters.get("allowed.paths", "").split(",") if part.strip()]
    resolved = path.resolve()
    if allowed and not any(resolved.is_relative_to(Path(each).resolve()) for each in allowed):
        raise ConfigError(f"{path} is not in allowed.paths of the config provider {provider.name}")
    return resolved
