"""Which level each feature has: set when the first brokers come that know it, and from then on as it is asked for.

A level means that all brokers do something the same way, such as the new group protocol. So none is set that a broker
of the cluster does not have, and none changes by itself: a feature that was switched off stays off when brokers come
and go, and after an update of all brokers it is an operator who says that there is no way back.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.machines.controller.changes import FeaturesChanged
from barnabas.model.errors import ApiError, InvalidUpdateVersion

if TYPE_CHECKING:
    from collections.abc import Collection

    from barnabas.machines.controller.decision import Decision
    from barnabas.machines.controller.image import BrokerImage, ClusterImage
    from barnabas.machines.controller.requests import LevelChange, UpdateFeatures

NOT_KNOWN = (0, 0)


def new_features(image: ClusterImage, brokers: Collection[BrokerImage]) -> list[FeaturesChanged]:
    """Features that every broker has and that were never set begin with the highest level that every broker has."""
    levels = dict(image.features)
    for name in set.intersection(*(set(broker.features) for broker in brokers)) if brokers else ():
        common = min(broker.features[name][1] for broker in brokers)
        if common > 0:
            levels.setdefault(name, common)
    return _changed(image, levels)


def update_features(decision: Decision, request: UpdateFeatures) -> None:
    """Set levels, all of them or none; the answer to a feature that is refused says why."""
    levels = dict(decision.image.features)
    for name, wanted in request.updates.items():
        reason = _reason_against(decision.image, name, wanted)
        if reason is not None:
            decision.answers[name] = _refusal(name, wanted, reason)
            return
        levels[name] = wanted.level
    for name in request.updates:
        decision.answers[name] = None
    if not request.validate_only:
        decision.assume(*_changed(decision.image, levels))


def _changed(image: ClusterImage, levels: dict[str, int]) -> list[FeaturesChanged]:
    if levels == dict(image.features) and image.features_epoch >= 0:
        return []
    return [FeaturesChanged(levels, image.features_epoch + 1)]


def _reason_against(image: ClusterImage, name: str, wanted: LevelChange) -> str | None:
    """Why a level cannot be set, in Kafka's words; None if it can."""
    if wanted.direction is None:
        return "The controller does not support the given upgrade type."
    if wanted.level < 0:
        return "A feature version cannot be less than 0."
    for number, broker in sorted(image.brokers.items()):
        lowest, highest = broker.features.get(name, NOT_KNOWN)
        if highest == 0:
            return f"Broker {number} does not support this feature."
        if not lowest <= wanted.level <= highest:
            return f"Broker {number} only supports versions {lowest}-{highest}"
    current = image.features.get(name, 0)
    if wanted.level < current and wanted.direction == "upgrade":
        return (
            "Can't downgrade the version of this feature without setting the upgrade type to either safe or unsafe "
            "downgrade."
        )
    if wanted.level > current and wanted.direction == "downgrade":
        return "Can't downgrade to a newer version."
    return None


def _refusal(name: str, wanted: LevelChange, reason: str) -> ApiError:
    return InvalidUpdateVersion(f"Invalid update version {wanted.level} for feature {name}. {reason}")
