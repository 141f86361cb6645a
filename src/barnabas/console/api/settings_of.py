"""Settings of topics and brokers as the page shows them: value, where it comes from, the default, and what it means."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from barnabas.console.api.answers import InvalidQuestion
from barnabas.model.config.definition import Support, Type
from barnabas.model.config.keys.all_keys import BROKER_KEYS, GROUP_KEYS, TOPIC_KEYS
from barnabas.protocol.apis import ConfigSource

if TYPE_CHECKING:
    from barnabas.clients.admin.cluster_admin import ClusterAdmin
    from barnabas.clients.admin.configs import EntityType, Setting
    from barnabas.model.config.definition import Key

SOURCES: Final = {
    ConfigSource.DYNAMIC_TOPIC_CONFIG: "topic",
    ConfigSource.DYNAMIC_BROKER_CONFIG: "broker, changed at run time",
    ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG: "all brokers, changed at run time",
    ConfigSource.STATIC_BROKER_CONFIG: "broker's file",
    ConfigSource.DEFAULT_CONFIG: "default",
    ConfigSource.DYNAMIC_GROUP_CONFIG: "group",
}


KEYS: Final[dict[str, dict[str, Key]]] = {"topic": TOPIC_KEYS, "broker": BROKER_KEYS, "group": GROUP_KEYS}


def setting_row(setting: Setting, kind: str) -> dict[str, Any]:
    """One setting."""
    key = KEYS[kind].get(setting.name)
    stated = {each.source: each.value for each in setting.stated}
    default = stated.get(ConfigSource.DEFAULT_CONFIG)
    if default is None and key is not None and key.default is not None and not setting.sensitive:
        default = key.write(key.default)
    return {
        "name": setting.name,
        "value": setting.value,
        "source": SOURCES.get(setting.source, setting.source.name.lower()),
        "set": setting.source is not ConfigSource.DEFAULT_CONFIG,
        "own": setting.source in (ConfigSource.DYNAMIC_TOPIC_CONFIG, ConfigSource.DYNAMIC_BROKER_CONFIG),
        "default": default,
        "read_only": setting.read_only,
        "sensitive": setting.sensitive,
        "meaning": "" if key is None else key.doc,
        "ignored": key is not None and key.support is Support.IGNORED,
        "takes": _takes(key),
    }


class SettingsChange(NamedTuple):
    """What a page wants to be changed: settings with their new values, and those that return to their default."""

    set: dict[str, str]
    unset: list[str]

    @classmethod
    def of(cls, body: dict[str, Any]) -> SettingsChange:
        """What a request asks for; raises InvalidQuestion."""
        unset = body.get("unset", [])
        if not isinstance(unset, list) or not all(isinstance(each, str) for each in unset):
            raise InvalidQuestion("unset is a list of names.")
        return cls(texts_of(body.get("set", {})), unset)

    def apply(self, cluster: ClusterAdmin, kind: EntityType, name: str) -> None:
        """Have a cluster change them; raises RequestRefused."""
        cluster.configs.alter(kind, name, add=self.set, delete=self.unset)


def texts_of(value: object) -> dict[str, str]:
    """Settings with their values; raises InvalidQuestion."""
    if not isinstance(value, dict) or not all(isinstance(each, str) for each in value.values()):
        raise InvalidQuestion("Settings are names with texts.")
    return value


def _takes(key: Key | None) -> str:
    if key is None:
        return ""
    if key.type is Type.BOOLEAN:
        return "true, false"
    return "" if key.takes is None else str(key.takes)
