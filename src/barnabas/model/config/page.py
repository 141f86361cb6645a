"""docs/configuration.md, made from the tables of keys so that it cannot say anything else.

python -m barnabas.model.config.page > docs/configuration.md
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.model.config.definition import Key, Standing, Type
from barnabas.model.config.group_keys import broker_key
from barnabas.model.config.keys import BROKER_KEYS, GROUP_KEYS, TOPIC_KEYS
from barnabas.model.config.topic_keys import SYNONYMS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

INTRODUCTION = """\
# Configuration

A broker takes its configuration from a `server.properties` file (`barnabas start --config FILE`) and from
`--set KEY=VALUE`, which is stronger. The keys are Apache Kafka's, with Kafka's types, defaults and ranges, so a file of
a Kafka broker works as it is:

- a key of Kafka that has no effect here gets one warning when it is set;
- a key that is nearly one of those below is taken for a typing error, and the broker does not start;
- any other unknown key gets a warning;
- a value that its key does not take is an error that names key, value and what it takes.

Keys marked *cluster-wide* or *per-broker* can be changed while brokers run (`kafka-configs --entity-type brokers
--alter`); those of topics always can. What is set dynamically for one broker is stronger than what is set for all
brokers, which is stronger than the file.

"""


def page() -> str:
    """The whole page."""
    broker, topic = sorted(BROKER_KEYS.values()), sorted(TOPIC_KEYS.values())
    group = sorted(GROUP_KEYS.values())
    return INTRODUCTION + "\n".join(
        (
            "## Broker keys\n",
            *_table(_of(broker, Standing.HONOURED), "Changes at run time", lambda key: key.mode.value),
            "\n## Barnabas's own broker keys\n",
            *_table(_of(broker, Standing.OWN), "Changes at run time", lambda key: key.mode.value),
            "\n## Topic keys\n",
            *_table(_of(topic, Standing.HONOURED), "Broker key for the default", _broker_key),
            "\n## Group keys\n",
            "Set for one group with `barnabas configs --alter --group ID --add-config KEY=VALUE`; broker keys with "
            "`min` and `max` in their names say how far they may go.\n",
            *_table(
                _of(group, Standing.HONOURED), "Broker key for the default", lambda key: f"`{broker_key(key.name)}`"
            ),
            "\n## Keys of Kafka without effect\n",
            "Broker keys of Apache Kafka 4.3:\n",
            _names(_of(broker, Standing.IGNORED)),
            "\nBroker keys of Apache Kafka 3.9 that 4.3 has no longer:\n",
            _names(_of(broker, Standing.RETIRED)),
            "\nTopic keys, which may be set and are shown as they were set:\n",
            _names(_of(topic, Standing.IGNORED)),
            "\nGroup keys, likewise:\n",
            _names(_of(group, Standing.IGNORED)),
            "",
        )
    )


def _of(keys: Iterable[Key], standing: Standing) -> list[Key]:
    return [key for key in keys if key.standing is standing]


def _table(keys: Iterable[Key], last: str, cell: Callable[[Key], str]) -> Iterable[str]:
    yield f"| Key | What it does | Type | Default | Takes | {last} |"
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


def _names(keys: Iterable[Key]) -> str:
    return ", ".join(f"`{key.name}`" for key in keys) + "."


if __name__ == "__main__":
    print(page(), end="")
