"""Values that stand elsewhere (`config.providers`, KIP-297): `${file:/run/secrets/broker:password}`.

    config.providers=file,env
    config.providers.file.class=org.apache.kafka.common.config.provider.FileConfigProvider
    config.providers.file.param.allowed.paths=/run/secrets

So no secret has to stand in a properties file. What Kafka leaves as it is when it is not found is an error here: a
password must not come to be the text of a placeholder. Who reads files and variables is given: this module does not.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, NamedTuple

from barnabas.model.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    Find = Callable[["Provider", str, str], str | None]
    """Gives the value of a key at a path, for a provider; None if there is none."""

PREFIX: Final = "config.providers"
FILE: Final = "FileConfigProvider"
DIRECTORY: Final = "DirectoryConfigProvider"
ENVIRONMENT: Final = "EnvVarConfigProvider"

_PLACEHOLDER: Final = re.compile(r"\$\{([^}:]+):(?:([^}]*?):)?([^}]*?)\}")


class Provider(NamedTuple):
    """One provider: the kind of it, and its parameters."""

    name: str
    kind: str
    parameters: Mapping[str, str]


def resolve(properties: Mapping[str, str], find: Find) -> dict[str, str]:
    """The properties with values in the places of placeholders, without those of the providers. Raises ConfigError."""
    providers = {provider.name: provider for provider in _providers(properties)}
    return {
        key: _replaced(key, text, providers, find)
        for key, text in properties.items()
        if not key.startswith(f"{PREFIX}.")
    }


def _providers(properties: Mapping[str, str]) -> list[Provider]:
    names = filter(None, (name.strip() for name in properties.get(PREFIX, "").split(",")))
    return [_provider(name, properties) for name in names]


def _provider(name: str, properties: Mapping[str, str]) -> Provider:
    key = f"{PREFIX}.{name}.class"
    kind = properties.get(key, "").strip().rpartition(".")[2]
    if kind not in (FILE, DIRECTORY, ENVIRONMENT):
        raise ConfigError(f"{key} is {properties.get(key, 'not set')}: it takes {FILE}, {DIRECTORY} or {ENVIRONMENT}")
    prefix = f"{PREFIX}.{name}.param."
    return Provider(
        name, kind, {each.removeprefix(prefix): text for each, text in properties.items() if each.startswith(prefix)}
    )


def _replaced(key: str, text: str, providers: Mapping[str, Provider], find: Find) -> str:
    def replace(match: re.Match[str]) -> str:
        provider = providers.get(match[1])
        if provider is None:
            return match[0]
        value = find(provider, match[2] or "", match[3])
        if value is None:
            raise ConfigError(f"{key} has {match[0]}, and there is no such value")
        return value

    return _PLACEHOLDER.sub(replace, text)
