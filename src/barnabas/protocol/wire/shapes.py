"""Requests and responses whose shape or meaning changed between versions: one function up, one down, per API.

A function up brings a request of any version to the newest one; a function down brings a newest response to a shape
that an older version can be made of. `protocol/wire/api_table` says which API has which. The codec converts everything
else by field names. Schemas are imported when a function first runs, since a broker that is never asked should not have
paid for them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from barnabas.model.errors import ErrorCode

if TYPE_CHECKING:
    from datetime import timedelta

NEVER: Final = -(2**63)
"""As a timestamp of ListOffsets: a special offset that the request's version has no name for."""
SPECIAL_SINCE: Final = {-1: 1, -2: 1, -3: 7, -4: 8, -5: 9, -6: 11}
"""The first version of ListOffsets that knows each special timestamp."""


def list_offsets_up(request: Any, version: int) -> Any:
    """Special timestamps that came after this version stand for nothing in it."""
    if all(_has_timestamp(part.timestamp, version) for topic in request.topics for part in topic.partitions):
        return request
    return replace(
        request,
        topics=tuple(
            replace(
                topic,
                partitions=tuple(
                    part if _has_timestamp(part.timestamp, version) else replace(part, timestamp=NEVER)
                    for part in topic.partitions
                ),
            )
            for topic in request.topics
        ),
    )


def _has_timestamp(timestamp: int, version: int) -> bool:
    return timestamp >= 0 or version >= SPECIAL_SINCE.get(timestamp, version)


def list_offsets_down(response: Any, version: int) -> Any:
    """Before version 5 a leader that does not know the high watermark yet was not available."""
    if version >= 5:
        return response
    return replace(
        response,
        topics=tuple(
            replace(
                topic,
                partitions=tuple(
                    replace(part, error_code=ErrorCode.leader_not_available)
                    if part.error_code is ErrorCode.offset_not_available
                    else part
                    for part in topic.partitions
                ),
            )
            for topic in response.topics
        ),
    )


def delete_topics_up(request: Any, version: int) -> Any:
    """Up to version 5 topics are a plain list of names."""
    if version >= 6:
        return request
    from kio.schema.delete_topics.v6.request import DeleteTopicsRequest, DeleteTopicState

    states = tuple(DeleteTopicState(name=name, topic_id=None) for name in request.topic_names)
    return DeleteTopicsRequest(topics=states, timeout=request.timeout)


def delete_topics_down(response: Any, version: int) -> Any:
    """Before version 3 there was no code for a broker that deletes no topics."""
    if version >= 3:
        return response
    return replace(
        response,
        responses=tuple(
            replace(result, error_code=ErrorCode.invalid_request)
            if result.error_code is ErrorCode.topic_deletion_disabled
            else result
            for result in response.responses
        ),
    )


def find_coordinator_up(request: Any, version: int) -> Any:
    """Up to version 3 a request has one key, and in version 0 it is always a group's."""
    if version >= 4:
        return request
    from kio.schema.find_coordinator.v6.request import FindCoordinatorRequest
    from kio.static.primitive import i8

    return FindCoordinatorRequest(key_type=getattr(request, "key_type", i8(0)), coordinator_keys=(request.key,))


@dataclass(frozen=True, slots=True, kw_only=True)
class OneCoordinator:
    """The answer of FindCoordinator up to version 3."""

    throttle_time: timedelta
    error_code: ErrorCode
    error_message: str | None
    node_id: int
    host: str
    port: int


def find_coordinator_down(response: Any, version: int) -> Any:
    """Up to version 3 a response has one coordinator."""
    if version >= 4:
        return response
    (only,) = response.coordinators
    return OneCoordinator(
        throttle_time=response.throttle_time,
        error_code=only.error_code,
        error_message=only.error_message,
        node_id=only.node_id,
        host=only.host,
        port=only.port,
    )


def list_config_resources_up(request: Any, version: int) -> Any:
    """Version 0 asks for client metrics only, and does not say so."""
    if version >= 1:
        return request
    from kio.schema.list_config_resources.v1.request import ListConfigResourcesRequest
    from kio.static.primitive import i8

    return ListConfigResourcesRequest(resource_types=(i8(16),))


def leave_group_up(request: Any, version: int) -> Any:
    """Up to version 2 one member leaves at a time."""
    if version >= 3:
        return request
    from kio.schema.leave_group.v5.request import LeaveGroupRequest, MemberIdentity

    return LeaveGroupRequest(group_id=request.group_id, members=(MemberIdentity(member_id=request.member_id),))


def leave_group_down(response: Any, version: int) -> Any:
    """Up to version 2 the error of the one member is the error of the request."""
    if version >= 3 or response.error_code is not ErrorCode.none or not response.members:
        return response
    return replace(response, error_code=response.members[0].error_code)


def update_features_up(request: Any, version: int) -> Any:
    """Version 0 has no direction: it says whether a level may fall."""
    if version > 0:
        return request
    from kio.schema.update_features.v2.request import FeatureUpdateKey, UpdateFeaturesRequest
    from kio.static.primitive import i8

    return UpdateFeaturesRequest(
        timeout=request.timeout,
        feature_updates=tuple(
            FeatureUpdateKey(
                feature=update.feature,
                max_version_level=update.max_version_level,
                upgrade_type=i8(2 if update.allow_downgrade else 1),
            )
            for update in request.feature_updates
        ),
    )


def api_versions_down(response: Any, version: int) -> Any:
    """Leave out features whose lowest level is 0 below v4: clients of that time take them for an error."""
    if version >= 4:
        return response
    features = tuple(feature for feature in response.supported_features if feature.min_version > 0)
    return replace(response, supported_features=features)
