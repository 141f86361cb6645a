"""Settings that can be read and changed while brokers run: of topics, brokers, loggers, groups, client metrics."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any

from kio.static.primitive import i8

from barnabas.clients.admin.groups import Groups
from barnabas.clients.admin.log_offsets import LogOffsets
from barnabas.clients.errors import RequestRefused
from barnabas.model.errors import ErrorCode
from barnabas.model.permissions import on_cluster, on_group, on_topic
from barnabas.protocol.apis import ConfigSource

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from barnabas.clients.wire.connection import Node, WireClient
    from barnabas.model.permissions import Action

DEFAULT_ENTITY = ""
"""The name under which brokers have what holds for all of them."""


class EntityType(Enum):
    """What has settings, by the names of kafka-configs; `number` is its type on the wire."""

    TOPICS = ("topics", 2)
    BROKERS = ("brokers", 4)
    BROKER_LOGGERS = ("broker-loggers", 8)
    CLIENT_METRICS = ("client-metrics", 16)
    GROUPS = ("groups", 32)

    def __init__(self, title: str, number: int) -> None:
        self.title = title
        self.number = number

    @property
    def singular(self) -> str:
        """The name for one of them."""
        return self.title[:-1]

    @property
    def of_one_broker(self) -> bool:
        """Whether only the broker itself can tell and change it."""
        return self in (EntityType.BROKERS, EntityType.BROKER_LOGGERS)


@dataclass(frozen=True, slots=True)
class Stated:
    """A value that somebody or something gave to a setting, under this or another name."""

    name: str
    value: str | None
    source: ConfigSource


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """A setting, and all that was stated for it, the strongest first; the value of a secret is None."""

    name: str
    value: str | None
    source: ConfigSource
    read_only: bool
    sensitive: bool
    stated: tuple[Stated, ...]

    def is_dynamic_for(self, kind: EntityType, name: str) -> bool:
        """Whether it was set for this very entity, and not in a file or for all of its kind."""
        if kind is EntityType.BROKERS:
            own = ConfigSource.DYNAMIC_BROKER_CONFIG if name else ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG
            return self.source is own
        return kind is EntityType.BROKER_LOGGERS or self.source in _OWN_SOURCES


_OWN_SOURCES = (
    ConfigSource.DYNAMIC_TOPIC_CONFIG,
    ConfigSource.DYNAMIC_CLIENT_METRICS_CONFIG,
    ConfigSource.DYNAMIC_GROUP_CONFIG,
)


class Configs:
    """The configs of a cluster's topics, brokers, loggers, groups and client metrics."""

    def __init__(self, wire: WireClient) -> None:
        self._wire = wire

    def entities(self, kind: EntityType) -> list[str]:
        """All entities of a kind, sorted; for brokers the default comes last."""
        if kind.of_one_broker:
            return [
                *(str(node.id) for node in self._wire.nodes()),
                *([DEFAULT_ENTITY] if kind is EntityType.BROKERS else []),
            ]
        if kind is EntityType.TOPICS:
            return sorted({partition.topic for partition in LogOffsets(self._wire).all_leaders()})
        names = set(self._configured(kind))
        if kind is EntityType.GROUPS:
            names.update(listing.group_id for listing in Groups(self._wire).listing())
        return sorted(names)

    def _configured(self, kind: EntityType) -> list[str]:
        """Entities with configs of their own; brokers before Kafka 4.1 list those of client metrics only."""
        from kio.schema.list_config_resources.v1.request import ListConfigResourcesRequest

        request = ListConfigResourcesRequest(resource_types=(i8(kind.number),))
        try:
            answer = self._wire.ask(request, at_least=0 if kind is EntityType.CLIENT_METRICS else 1)
        except RequestRefused as error:
            if error.code != ErrorCode.unsupported_version:
                raise
            return []
        _check(answer.error_code, None, on_cluster(f"list {kind.title} with configs", "DescribeConfigs"))
        return [one.resource_name for one in answer.config_resources if one.resource_type == kind.number]

    def describe(
        self, kind: EntityType, names: Iterable[str], *, only: Collection[str] | None = None
    ) -> dict[str, list[Setting]]:
        """The settings of the named entities, each list by name; or `only` some of them, without what was stated."""
        from kio.schema.describe_configs.v4.request import DescribeConfigsRequest, DescribeConfigsResource

        found: dict[str, list[Setting]] = {}
        for node, some in self._by_node(kind, names):
            request = DescribeConfigsRequest(
                resources=tuple(
                    DescribeConfigsResource(
                        resource_type=i8(kind.number),
                        resource_name=name,
                        configuration_keys=None if only is None else tuple(only),
                    )
                    for name in some
                ),
                include_synonyms=only is None,
            )
            for result in self._wire.ask(request, at=node).results:
                action = _action("describe", "DescribeConfigs", kind, result.resource_name)
                _check(result.error_code, result.error_message, action)
                found[result.resource_name] = sorted(map(_setting, result.configs), key=lambda setting: setting.name)
        return found

    def alter(self, kind: EntityType, name: str, *, add: Mapping[str, str], delete: Iterable[str]) -> None:
        """Set some settings of an entity and return others to their default; raises RequestRefused."""
        from kio.schema.incremental_alter_configs.v1.request import (
            AlterableConfig,
            AlterConfigsResource,
            IncrementalAlterConfigsRequest,
        )

        set_, unset = i8(0), i8(1)
        request = IncrementalAlterConfigsRequest(
            resources=(
                AlterConfigsResource(
                    resource_type=i8(kind.number),
                    resource_name=name,
                    configs=(
                        *(AlterableConfig(name=key, config_operation=unset, value="") for key in delete),
                        *(AlterableConfig(name=key, config_operation=set_, value=value) for key, value in add.items()),
                    ),
                ),
            ),
            validate_only=False,
        )
        ((node, _),) = self._by_node(kind, [name])
        for response in self._wire.ask(request, at=node).responses:
            _check(response.error_code, response.error_message, _action("change", "AlterConfigs", kind, name))

    def _by_node(self, kind: EntityType, names: Iterable[str]) -> list[tuple[Node | None, list[str]]]:
        """Who is to be asked about which entities: any broker, or the one that they are about."""
        if not kind.of_one_broker:
            return [(None, list(names))]
        nodes = {str(node.id): node for node in self._wire.nodes()}
        return [(nodes.get(name), [name]) for name in names]


def _setting(config: Any) -> Setting:
    return Setting(
        name=config.name,
        value=config.value,
        source=ConfigSource(config.config_source),
        read_only=config.read_only,
        sensitive=config.is_sensitive,
        stated=tuple(Stated(one.name, one.value, ConfigSource(one.source)) for one in config.synonyms),
    )


def _action(verb: str, operation: str, kind: EntityType, name: str) -> Action:
    """What is done to the configs of an entity: those that are neither topics nor groups belong to the cluster."""
    words = f"{verb} the configs of"
    match kind:
        case EntityType.TOPICS:
            return on_topic(words, operation, name)
        case EntityType.GROUPS:
            return on_group(words, operation, name)
        case _:
            return on_cluster(f"{words} {f'{kind.singular} {name}' if name else f'all {kind.title}'}", operation)


def _check(code: ErrorCode, message: str | None, action: Action) -> None:
    if code != ErrorCode.none:
        raise RequestRefused(code, message or f"the broker answered {code.name.upper()}", action)
