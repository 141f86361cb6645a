"""docs/configuration.md, made from the tables of keys so that it cannot say anything else.

python -m barnabas.model.config.page > docs/configuration.md
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.model.config.definition import Key, Support, Type
from barnabas.model.config.keys.all_keys import BROKER_KEYS, GROUP_KEYS, TOPIC_KEYS
from barnabas.model.config.keys.group_keys import broker_key
from barnabas.model.config.keys.topic_keys import SYNONYMS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

INTRODUCTION = """\
# Configuration

A broker reads its configuration from a `server.properties` file (`barnabas start --config FILE`). `--set KEY=VALUE`
overrides the file. The keys are Apache Kafka's, with Kafka's types, defaults and ranges, so the file of a Kafka broker
works unchanged:

- The broker logs a warning for each key that is set and has no effect in Barnabas.
- The broker does not start if a key looks like a misspelling of one below. It logs a warning for any other unknown key.
- The broker does not start if a value is invalid. The error names the key, the value and the valid values.

Keys marked *cluster-wide* or *per-broker* can be changed while brokers run (`kafka-configs --entity-type brokers
--alter`). Keys of topics and groups can always be changed. A value set for one broker overrides a value set for all
brokers, which overrides the file.

"""


def page() -> str:
    """The whole page."""
    broker, topic = sorted(BROKER_KEYS.values()), sorted(TOPIC_KEYS.values())
    group = sorted(GROUP_KEYS.values())
    return INTRODUCTION + "\n".join(
        (
            "## Broker keys\n",
            *_table(_of(broker, Support.HONOURED), "Changes at run time", lambda key: key.mode.value),
            "\n## Barnabas's own broker keys\n",
            *_table(_of(broker, Support.OWN), "Changes at run time", lambda key: key.mode.value),
            "\n## Topic keys\n",
            *_table(_of(topic, Support.HONOURED), "Broker key for the default", _broker_key),
            "\n## Group keys\n",
            "Set for one group with `barnabas configs --alter --group ID --add-config KEY=VALUE`. Broker keys with "
            "`min` and `max` in their names limit the values.\n",
            *_table(_of(group, Support.HONOURED), "Broker key for the default", _group_default),
            "\n## Keys without effect\n",
            "Barnabas accepts these broker keys of Apache Kafka 4.3, and they have no effect:\n",
            _names(_of(broker, Support.IGNORED)),
            "\nThe same is true of these broker keys of Apache Kafka 3.9, which 4.3 does not have:\n",
            _names(_of(broker, Support.RETIRED)),
            "\nThese topic keys can be set and described, and have no effect:\n",
            _names(_of(topic, Support.IGNORED)),
            "\nThese group keys can be set and described, and have no effect:\n",
            _names(_of(group, Support.IGNORED)),
            "",
        )
    )


def _of(keys: Iterable[Key], support: Support) -> list[Key]:
    return [key for key in keys if key.support is support]


def _table(keys: Iterable[Key], last: str, cell: Callable[[Key], str]) -> Iterable[str]:
    yield f"| Key | What it does | Type | Default | Valid values | {last} |"
    yield "|---|---|---|---|---|---|"
    for key in keys:
        yield f"| `{key.name}` | {key.doc} | {key.type.name.lower()} | {_default(key)} | {_takes(key)} | {cell(key)} |"


def _default(key: Key) -> str:
    if key.default is None:
        return "not set"
    text = key.write(key.default)
    return f"`{text}`" if text else "empty"


def _takes(key: Key) -> str:
    if key.type is Type.BOOLEAN:
        return "true, false"
    return "" if key.takes is None else str(key.takes)


def _broker_key(key: Key) -> str:
    return ", ".join(f"`{name}`" for name, _ in SYNONYMS.get(key.name, ()))


def _group_default(key: Key) -> str:
    name = broker_key(key.name)
    return "" if name is None else f"`{name}`"


def _names(keys: Iterable[Key]) -> str:
    return ", ".join(f"`{key.name}`" for key in keys) + "."


if __name__ == "__main__":
    print(page(), end="")
