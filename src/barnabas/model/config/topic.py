"""A topic's configuration: its own overrides over the broker's values over Kafka's defaults, resolved to a LogConfig.

Overrides are checked when they are set (`check_overrides`), with Kafka's words. When they are read back they are only
parsed, so that a topic of an older Kafka with a value that was in range at that time still loads.
"""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING, Any, Final

from barnabas.model.config.keys.all_keys import TOPIC_KEYS
from barnabas.model.config.keys.topic_keys import SYNONYMS
from barnabas.model.errors import InvalidConfig
from barnabas.model.log_config import UNLIMITED, LogConfig

if TYPE_CHECKING:
    from collections.abc import Mapping

    from barnabas.model.config.definition import Value
    from barnabas.model.config.values import Values

_FIELDS: Final = tuple((field.name, field.name.replace("_", ".")) for field in fields(LogConfig) if field.init)


def check_overrides(overrides: Mapping[str, str], broker: Values) -> None:
    """Refuse overrides that Kafka would refuse, with InvalidConfig and Kafka's words."""
    for name in overrides:
        if name not in TOPIC_KEYS:
            raise InvalidConfig(f"Unknown topic config name: {name}")
    for name, text in overrides.items():
        TOPIC_KEYS[name].parse(text)
    if TOPIC_KEYS["remote.storage.enable"].read(overrides.get("remote.storage.enable", "false")):
        raise InvalidConfig(
            "Tiered Storage functionality is disabled in the broker. "
            "Topic cannot be configured with remote log storage."
        )
    config = resolve(overrides, broker)
    if config.min_compaction_lag_ms > config.max_compaction_lag_ms:
        raise InvalidConfig(
            f"conflict topic config setting min.compaction.lag.ms ({config.min_compaction_lag_ms}) "
            f"> max.compaction.lag.ms ({config.max_compaction_lag_ms})"
        )


def broker_default(name: str, broker: Values) -> Value:
    """What a topic that does not override the key gets: the strongest broker key that is set, else the default."""
    for broker_key, unit in SYNONYMS.get(name, ()):
        value = broker.value(broker_key)
        if value is None:
            continue
        if name == "retention.ms" and isinstance(value, int) and value < 0:
            return UNLIMITED
        return value if unit == 1 or not isinstance(value, int) else value * unit
    return TOPIC_KEYS[name].default


def resolve(overrides: Mapping[str, str], broker: Values) -> LogConfig:
    """The effective configuration of a topic with these overrides, on a broker with these values."""
    settings: dict[str, Any] = {}
    for field, name in _FIELDS:
        text = overrides.get(name)
        value = broker_default(name, broker) if text is None else TOPIC_KEYS[name].read(text)
        settings[field] = frozenset(value) if isinstance(value, tuple) else value
    small = overrides.get("internal.segment.bytes")
    if small is not None:
        settings["segment_bytes"] = TOPIC_KEYS["internal.segment.bytes"].read(small)
    return LogConfig(**settings)
