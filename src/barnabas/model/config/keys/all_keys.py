"""Every key there is: Kafka's, from its tables, and our own; and which broker keys stand behind a topic key."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, NamedTuple

from barnabas.model.config.definition import Key, OneOf, Range, Support
from barnabas.model.config.keys import broker_keys, group_keys, retired_keys, sentences, topic_keys
from barnabas.model.config.keys.words import BOOLEAN, HIGH, INT, ITEMS, LIST, LOW, MEDIUM, PASSWORD, READ_ONLY, STRING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from barnabas.model.config.definition import Row

_ONE_LISTENER: Final = re.compile(r"listener\.name\.([^.]*)\.(.*)")
_OF_MECHANISMS: Final = frozenset(
    {
        "connections.max.reauth.ms",
        "sasl.jaas.config",
        "sasl.login.callback.handler.class",
        "sasl.login.class",
        "sasl.server.callback.handler.class",
    }
)
"""Keys that may be set for one SASL mechanism of one listener."""

AT_START: Final = frozenset(
    {
        "config.providers",
        "listeners",
        "listener.security.protocol.map",
        "sasl.kerberos.principal.to.local.rules",
        "sasl.kerberos.service.name",
    }
)
"""Keys that Kafka changes at run time and Barnabas reads only when it starts."""

IGNORED_SENTENCE: Final = "This key of Apache Kafka has no effect in Barnabas."

OF_THE_AUTHORIZER: Final = (
    Key(
        "allow.everyone.if.no.acl.found",
        BOOLEAN,
        False,
        None,
        MEDIUM,
        READ_ONLY,
        Support.HONOURED,
        "Whether everybody may do everything with a resource that no ACL is for.",
    ),
    Key(
        "super.users",
        STRING,
        "",
        None,
        MEDIUM,
        READ_ONLY,
        Support.HONOURED,
        "The principals that may do everything, whatever ACLs say, with semicolons between them: User:alice;User:bob.",
    ),
)
"""Keys of Kafka's authorizers, which are no keys of its brokers."""

OWN: Final = (
    Key(
        "connection.authentication.timeout.ms",
        INT,
        30_000,
        Range(1),
        MEDIUM,
        READ_ONLY,
        Support.OWN,
        "How long a client may take to log in on a SASL listener before the broker closes its connection.",
    ),
    Key(
        "delegation.token.max.per.owner",
        INT,
        1_000,
        Range(1),
        LOW,
        READ_ONLY,
        Support.OWN,
        "About how many delegation tokens of a user are stored at a time: every user may have tokens made.",
    ),
    Key(
        "org.apache.kafka.sasl.oauthbearer.allowed.urls",
        LIST,
        (),
        ITEMS,
        MEDIUM,
        READ_ONLY,
        Support.OWN,
        "The URLs that sasl.oauthbearer.jwks.endpoint.url and sasl.oauthbearer.token.endpoint.url may be set to, "
        "separated by commas. In Kafka this is a property of the JVM.",
    ),
    Key(
        "sasl.oauthbearer.unsigned.tokens.enable",
        BOOLEAN,
        False,
        None,
        LOW,
        READ_ONLY,
        Support.OWN,
        "Whether the broker accepts only OAUTHBEARER tokens without a signature, which anybody can make. For "
        "development only.",
    ),
    Key(
        "zookeeper.auth.password",
        PASSWORD,
        None,
        None,
        MEDIUM,
        READ_ONLY,
        Support.OWN,
        "The password of zookeeper.auth.username.",
    ),
    Key(
        "zookeeper.auth.scheme",
        STRING,
        "digest",
        OneOf(("digest", "sasl")),
        MEDIUM,
        READ_ONLY,
        Support.OWN,
        "How a broker authenticates to ZooKeeper: with its digest scheme, or with SASL (DIGEST-MD5).",
    ),
    Key(
        "zookeeper.auth.username",
        STRING,
        None,
        None,
        MEDIUM,
        READ_ONLY,
        Support.OWN,
        "The user that all brokers of the cluster authenticate to ZooKeeper as. If unset, they do not authenticate.",
    ),
    Key(
        "metrics.listener",
        STRING,
        None,
        None,
        HIGH,
        READ_ONLY,
        Support.OWN,
        "The address at which the broker serves its metrics and its health over HTTP: HOST:PORT, or PORT for the "
        "loopback alone. If unset, it does not.",
    ),
    Key(
        "metrics.max.group.offsets",
        INT,
        50_000,
        Range(0),
        LOW,
        READ_ONLY,
        Support.OWN,
        "How many committed offsets have metrics of their own, each a partition of a group. Groups for whose offsets "
        "there is no room have sums by topic.",
    ),
    Key(
        "metrics.max.groups",
        INT,
        2_000,
        Range(0),
        LOW,
        READ_ONLY,
        Support.OWN,
        "How many groups have metrics of their own; clients may make any number of them.",
    ),
    Key(
        "metrics.max.partitions",
        INT,
        20_000,
        Range(0),
        LOW,
        READ_ONLY,
        Support.OWN,
        "How many partitions, and how many topics, have metrics of their own.",
    ),
    Key(
        "metrics.security.protocol",
        STRING,
        "PLAINTEXT",
        OneOf(("PLAINTEXT", "SSL")),
        MEDIUM,
        READ_ONLY,
        Support.OWN,
        "Whether metrics.listener uses TLS. Its keystore is that of the other listeners, or its own: "
        "listener.name.metrics.ssl.keystore.location.",
    ),
    Key(
        "metrics.token",
        PASSWORD,
        None,
        None,
        MEDIUM,
        READ_ONLY,
        Support.OWN,
        "The bearer token that readers of metrics.listener must send. If unset, everybody who can reach it may read.",
    ),
    Key(
        "slow.request.ms",
        INT,
        1_000,
        Range(-1),
        LOW,
        READ_ONLY,
        Support.OWN,
        "With metrics.listener, the logger barnabas.slow logs requests that take longer. The time that a request waits "
        "for records or for members does not count. -1 logs none.",
    ),
    Key(
        "telemetry.interval.ms",
        INT,
        300_000,
        Range(100),
        LOW,
        READ_ONLY,
        Support.OWN,
        "How often clients push their metrics, with telemetry.otlp.endpoint.",
    ),
    Key(
        "telemetry.metrics",
        LIST,
        (),
        ITEMS,
        LOW,
        READ_ONLY,
        Support.OWN,
        "The prefixes of the names of the metrics that clients push. If unset, clients push all metrics.",
    ),
    Key(
        "telemetry.otlp.endpoint",
        STRING,
        None,
        None,
        MEDIUM,
        READ_ONLY,
        Support.OWN,
        "The URL of an OTLP receiver, http://HOST:4318/v1/metrics, which gets the metrics of clients (KIP-714). If "
        "unset, clients are not asked for any.",
    ),
    Key(
        "telemetry.otlp.token",
        PASSWORD,
        None,
        None,
        MEDIUM,
        READ_ONLY,
        Support.OWN,
        "The bearer token for the receiver of telemetry.otlp.endpoint. If unset, none is sent.",
    ),
    Key(
        "metadata.store",
        STRING,
        None,
        None,
        HIGH,
        READ_ONLY,
        Support.OWN,
        "The file that holds the cluster's metadata, outside the data directories. If unset, beside the first one.",
    ),
)


def _keys(rows: Iterable[Row], support: Support, described: dict[str, str], hidden: bool) -> Iterable[Key]:
    for name, kind, default, takes, importance, mode in rows:
        sentence = described.get(name)
        effect = support if sentence is None else Support.HONOURED
        change = READ_ONLY if name in AT_START else mode
        yield Key(name, kind, default, takes, importance, change, effect, sentence or IGNORED_SENTENCE, hidden)


class ListenerSetting(NamedTuple):
    """What a name of the form `listener.name.LISTENER.KEY` or `listener.name.LISTENER.MECHANISM.KEY` sets."""

    listener: str
    """As it is written there."""
    mechanism: str | None
    """The SASL mechanism, in lower case; None if it is for all of them."""
    key: str


def listener_setting(name: str) -> ListenerSetting | None:
    """What `name` sets for one listener, or None if it is no such name.

    >>> listener_setting("listener.name.internal.scram-sha-256.sasl.jaas.config")
    ListenerSetting(listener='internal', mechanism='scram-sha-256', key='sasl.jaas.config')
    """
    match = _ONE_LISTENER.fullmatch(name)
    if match is None:
        return None
    listener, setting = match[1], match[2]
    for key in _OF_MECHANISMS:  # whatever stands for the mechanism: a password is one behind a misspelt name, too
        if setting.endswith(f".{key}"):
            return ListenerSetting(listener, setting.removesuffix(f".{key}"), key)
    mechanism, _, key = setting.partition(".")
    if mechanism == "oauthbearer" and key.startswith("sasl.oauthbearer."):
        return ListenerSetting(listener, mechanism, key)
    return ListenerSetting(listener, None, setting)


def of_one_listener(name: str) -> str | None:
    """The key that `name` sets for one listener, or None if it is no such name.

    >>> of_one_listener("listener.name.internal.max.connections")
    'max.connections'
    """
    setting = listener_setting(name)
    return None if setting is None else setting.key


BROKER_KEYS: Final[dict[str, Key]] = {
    key.name: key
    for keys in (
        _keys(broker_keys.SHOWN, Support.IGNORED, sentences.BROKER, hidden=False),
        _keys(broker_keys.HIDDEN, Support.IGNORED, sentences.BROKER, hidden=True),
        _keys(retired_keys.RETIRED, Support.RETIRED, sentences.BROKER, hidden=True),
        OF_THE_AUTHORIZER,
        OWN,
    )
    for key in keys
}


def broker_key_of(name: str) -> Key | None:
    """The broker key that a setting is about, for one listener or for the broker; None if there is none.

    >>> key = broker_key_of("listener.name.internal.plain.sasl.jaas.config")
    >>> key.name, key.sensitive
    ('sasl.jaas.config', True)
    """
    return BROKER_KEYS.get(of_one_listener(name) or name)


TOPIC_KEYS: Final[dict[str, Key]] = {
    key.name: key
    for keys in (
        _keys(topic_keys.SHOWN, Support.IGNORED, sentences.TOPIC, hidden=False),
        _keys(topic_keys.HIDDEN, Support.IGNORED, sentences.TOPIC, hidden=True),
    )
    for key in keys
}

GROUP_KEYS: Final[dict[str, Key]] = {
    key.name: key for key in _keys(group_keys.ROWS, Support.IGNORED, group_keys.SENTENCES, hidden=False)
}
