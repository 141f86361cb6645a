"""The features of a cluster: levels of behaviour that all brokers switch to together, such as group.version."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from enum import IntEnum
from typing import TYPE_CHECKING

from barnabas import __version__
from barnabas.clients.errors import RequestRefused
from barnabas.clients.wire.connection import CLIENT_ID
from barnabas.model.errors import ErrorCode
from barnabas.model.permissions import on_cluster

if TYPE_CHECKING:
    from collections.abc import Mapping

    from barnabas.clients.wire.connection import Node, WireClient


class UpgradeType(IntEnum):
    """Which way a level may move, with the numbers that UpdateFeatures has for it."""

    UPGRADE = 1
    SAFE_DOWNGRADE = 2
    UNSAFE_DOWNGRADE = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Feature:
    """A feature: the levels that the asked broker knows, and the one that holds, 0 if it is off."""

    name: str
    lowest: int
    highest: int
    finalized: int


@dataclass(frozen=True, slots=True)
class FeatureLevels:
    """All features, by name; `epoch` grows with each change of a level, and is None while none was ever set."""

    epoch: int | None
    features: tuple[Feature, ...]


class Features:
    """The features of a cluster."""

    def __init__(self, wire: WireClient) -> None:
        self._wire = wire

    def describe(self, broker: Node | None = None) -> FeatureLevels:
        """What one broker knows, and what holds in its self._wire."""
        from kio.schema.api_versions.v4.request import ApiVersionsRequest

        answer = self._wire.ask(
            ApiVersionsRequest(client_software_name=CLIENT_ID, client_software_version=__version__),
            at=broker,
            at_least=3,
        )
        finalized = {feature.name: feature.max_version_level for feature in answer.finalized_features}
        return FeatureLevels(
            None if answer.finalized_features_epoch < 0 else answer.finalized_features_epoch,
            tuple(
                Feature(
                    name=feature.name,
                    lowest=feature.min_version,
                    highest=feature.max_version,
                    finalized=finalized.get(feature.name, 0),
                )
                for feature in sorted(answer.supported_features, key=lambda feature: feature.name)
            ),
        )

    def update(self, levels: Mapping[str, int], change: UpgradeType, *, dry_run: bool) -> None:
        """Set levels, all or none; raises RequestRefused."""
        from kio.schema.update_features.v2.request import FeatureUpdateKey, UpdateFeaturesRequest
        from kio.static.primitive import i8, i16, i32Timedelta

        answer = self._wire.ask(
            UpdateFeaturesRequest(
                timeout=i32Timedelta.parse(timedelta(seconds=self._wire.deadline().seconds)),
                feature_updates=tuple(
                    FeatureUpdateKey(feature=name, max_version_level=i16(level), upgrade_type=i8(change))
                    for name, level in levels.items()
                ),
                validate_only=dry_run,
            ),
            at_least=2,
        )
        if answer.error_code != ErrorCode.none:
            raise RequestRefused(
                answer.error_code,
                answer.error_message or answer.error_code.name.upper(),
                on_cluster("change features", "Alter"),
            )
