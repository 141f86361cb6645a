"""Every key there is: Kafka's, from its tables, and our own; and which broker keys stand behind a topic key."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from barnabas.model.config import broker_keys, group_keys, retired_keys, sentences, topic_keys
from barnabas.model.config.definition import Key, OneOf, Standing
from barnabas.model.config.words import HIGH, MEDIUM, PASSWORD, READ_ONLY, STRING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from barnabas.model.config.definition import Row

_ONE_LISTENER: Final = re.compile(r"listener\.name\.[^.]*\.(.*)")

AT_START: Final = frozenset({"listeners", "listener.security.protocol.map"})
"""Keys that Kafka changes at run time and Barnabas reads only when it starts."""

IGNORED_SENTENCE: Final = "A key of Apache Kafka that has no effect in Barnabas."

OWN: Final = (
    Key(
        "zookeeper.auth.password",
        PASSWORD,
        None,
        None,
        MEDIUM,
        READ_ONLY,
        Standing.OWN,
        "The password that goes with zookeeper.auth.username.",
    ),
    Key(
        "zookeeper.auth.scheme",
        STRING,
        "digest",
        OneOf(("digest", "sasl")),
        MEDIUM,
        READ_ONLY,
        Standing.OWN,
        "How a broker says to ZooKeeper who it is: by its digest scheme, or by SASL (DIGEST-MD5).",
    ),
    Key(
        "zookeeper.auth.username",
        STRING,
        None,
        None,
        MEDIUM,
        READ_ONLY,
        Standing.OWN,
        "Who all brokers of the cluster are to ZooKeeper; nobody in particular if unset.",
    ),
    Key(
        "metadata.store",
        STRING,
        None,
        None,
        HIGH,
        READ_ONLY,
        Standing.OWN,
        "The file that holds the cluster's metadata, outside the data directories; beside the first of them if unset.",
    ),
)


def _keys(rows: Iterable[Row], standing: Standing, described: dict[str, str], hidden: bool) -> Iterable[Key]:
    for name, kind, default, takes, importance, mode in rows:
        sentence = described.get(name)
        place = standing if sentence is None else Standing.HONOURED
        change = READ_ONLY if name in AT_START else mode
        yield Key(name, kind, default, takes, importance, change, place, sentence or IGNORED_SENTENCE, hidden)


def of_one_listener(name: str) -> str | None:
    """The key that `name` sets for one listener, or None if it is no such name.

    >>> of_one_listener("listener.name.internal.max.connections")
    'max.connections'
    """
    match = _ONE_LISTENER.fullmatch(name)
    return None if match is None else match[1]


BROKER_KEYS: Final[dict[str, Key]] = {
    key.name: key
    for keys in (
        _keys(broker_keys.SHOWN, Standing.IGNORED, sentences.BROKER, hidden=False),
        _keys(broker_keys.HIDDEN, Standing.IGNORED, sentences.BROKER, hidden=True),
        _keys(retired_keys.RETIRED, Standing.RETIRED, sentences.BROKER, hidden=True),
        OWN,
    )
    for key in keys
}

TOPIC_KEYS: Final[dict[str, Key]] = {
    key.name: key
    for keys in (
        _keys(topic_keys.SHOWN, Standing.IGNORED, sentences.TOPIC, hidden=False),
        _keys(topic_keys.HIDDEN, Standing.IGNORED, sentences.TOPIC, hidden=True),
    )
    for key in keys
}

GROUP_KEYS: Final[dict[str, Key]] = {
    key.name: key for key in _keys(group_keys.ROWS, Standing.IGNORED, group_keys.SENTENCES, hidden=False)
}
