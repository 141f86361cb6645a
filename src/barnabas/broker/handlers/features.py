"""UpdateFeatures v0–2: the finalized levels of the cluster's features, such as group.version.

- Only the controller answers; other brokers forward the request to it.
- All levels are set or none. The error at the top says which feature cannot be set, and why.
- v0 says only whether a level may be lowered; v1+ give a direction. Unsafe downgrades are done like safe ones, since no
  level here has data that a lower one could not read. v1+: `validate_only` changes nothing.
- v0–1: a result for each feature, when all is well.

What a level does: without group.version 1, ConsumerGroupHeartbeat and ConsumerGroupDescribe are refused, so that groups
use the classic protocol; without share.version 1 the requests of share groups are, and without 2 they have
no dead letters; by transaction.version, clients choose the versions in which they speak of transactions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Literal

from kio.schema.update_features.v1 import response as listed
from kio.schema.update_features.v2.response import UpdateFeaturesResponse

from barnabas.broker.serving.throttle import NO_THROTTLE
from barnabas.machines.controller.requests import LevelChange, UpdateFeatures
from barnabas.model.errors import ApiError, ErrorCode

if TYPE_CHECKING:
    from kio.schema.update_features.v2.request import UpdateFeaturesRequest

    from barnabas.broker.context import BrokerContext
    from barnabas.broker.serving.caller import Caller

DIRECTIONS: Final[dict[int, Literal["upgrade", "downgrade"]]] = {1: "upgrade", 2: "downgrade", 3: "downgrade"}
LISTS_RESULTS_UNTIL: Final = 1


async def update_features(broker: BrokerContext, request: UpdateFeaturesRequest, caller: Caller, version: int) -> Any:
    """Set the finalized levels of features."""
    updates = {
        update.feature: LevelChange(update.max_version_level, DIRECTIONS.get(update.upgrade_type))
        for update in request.feature_updates
    }
    answers = await broker.controller.decide(UpdateFeatures(updates, request.validate_only))
    for answer in answers.values():
        if isinstance(answer, ApiError):
            reason = f"The update failed for all features since the following feature had an error: {answer}"
            return UpdateFeaturesResponse(throttle_time=NO_THROTTLE, error_code=answer.code, error_message=reason)
    if version > LISTS_RESULTS_UNTIL:
        return UpdateFeaturesResponse(throttle_time=NO_THROTTLE, error_code=ErrorCode.none, error_message=None)
    return listed.UpdateFeaturesResponse(
        throttle_time=NO_THROTTLE,
        error_code=ErrorCode.none,
        error_message=None,
        results=tuple(
            listed.UpdatableFeatureResult(feature=update.feature, error_code=ErrorCode.none, error_message=None)
            for update in request.feature_updates
        ),
    )
