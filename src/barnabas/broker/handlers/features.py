"""UpdateFeatures v0–2: the levels of behaviour that all brokers have together, such as group.version.

- Only the controller answers; other brokers hand the request on to it.
- All levels are set, or, if one cannot be, none: the error at the top says which and why.
- v0 only tells whether a level may fall; v1+ tell a direction. Unsafe downgrades are done like safe ones, since no
  level here has data that a lower one could not read. v1+: `validate_only` changes nothing.
- v0–1: a result for each feature, when all is well.

What a level does: without group.version 1, ConsumerGroupHeartbeat and ConsumerGroupDescribe are refused, so that groups
use the classic protocol; by transaction.version, clients choose the versions in which they speak of transactions.

Not implemented: access control.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Literal

from kio.schema.update_features.v1 import response as listed
from kio.schema.update_features.v2.response import UpdateFeaturesResponse

from barnabas.broker.throttle import NO_THROTTLE
from barnabas.machines.controller.requests import LevelChange, UpdateFeatures
from barnabas.model.errors import ApiError, ErrorCode

if TYPE_CHECKING:
    from kio.schema.update_features.v2.request import UpdateFeaturesRequest

    from barnabas.broker.caller import Caller
    from barnabas.broker.context import Broker

DIRECTIONS: Final[dict[int, Literal["upgrade", "downgrade"]]] = {1: "upgrade", 2: "downgrade", 3: "downgrade"}
LISTS_RESULTS_UNTIL: Final = 1


async def update_features(broker: Broker, request: UpdateFeaturesRequest, caller: Caller, version: int) -> Any:
    """Set levels."""
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
