"""ApiVersions v0–4: which APIs and versions the broker serves, and its feature levels.

- A version that the broker does not know is answered in v0 with UNSUPPORTED_VERSION and the versions of ApiVersions
  itself, so that the client can ask again.
- v3+: the client's software name and version must look like names (KIP-511), otherwise INVALID_REQUEST.
- v3+: features, supported and finalized, with the epoch of the finalized ones, without those that were switched off.
  Supported features whose lowest level is 0 are left out below v4, since older clients cannot read them.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from kio.schema.api_versions.v4.response import (
    ApiVersion,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)
from kio.static.primitive import i16, i64

from barnabas.broker.serving.registry import APIS, BY_KEY, Api
from barnabas.broker.serving.throttle import NO_THROTTLE
from barnabas.model.errors import ErrorCode
from barnabas.protocol.apis import ApiKey

if TYPE_CHECKING:
    from kio.schema.api_versions.v4.request import ApiVersionsRequest

    from barnabas.broker.context import BrokerContext
    from barnabas.broker.serving.caller import Caller

OPTIONAL: Final = frozenset(api.only_with for api in APIS if api.only_with is not None)
"""Settings without which some APIs are not served."""
MOST_SOFTWARE: Final = 128
"""Characters of a client's software and version that are kept while it is connected."""
SOFTWARE_NAME: Final = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")


def api_versions(broker: BrokerContext, request: ApiVersionsRequest, caller: Caller) -> ApiVersionsResponse:
    """List what is served."""
    name, version = request.client_software_name, request.client_software_version
    if (name or version) and not (SOFTWARE_NAME.fullmatch(name) and SOFTWARE_NAME.fullmatch(version)):
        return ApiVersionsResponse(error_code=ErrorCode.invalid_request, api_keys=(), throttle_time=NO_THROTTLE)
    caller.session.software = f"{name} {version}"[:MOST_SOFTWARE] if name else ""
    image = broker.metadata.image
    own = image.brokers.get(broker.broker_id)
    return _answer(
        frozenset(filter(broker.settings.text_or_none, OPTIONAL)),
        tuple(own.features.items()) if own else (),
        image.features_epoch,
        tuple(image.features.items()),
    )


@lru_cache(maxsize=16)
def _answer(
    settings: frozenset[str],
    supported: tuple[tuple[str, tuple[int, int]], ...],
    epoch: int,
    finalized: tuple[tuple[str, int], ...],
) -> ApiVersionsResponse:
    """One object for as long as nothing changes: every client asks when it connects, and it is written once."""
    return ApiVersionsResponse(
        error_code=ErrorCode.none,
        api_keys=tuple(_entry(api) for api in APIS if not api.is_internal and api.only_with in (None, *settings)),
        throttle_time=NO_THROTTLE,
        supported_features=tuple(
            SupportedFeatureKey(name=feature, min_version=i16(lowest), max_version=i16(highest))
            for feature, (lowest, highest) in supported
        ),
        finalized_features_epoch=i64(epoch),
        finalized_features=tuple(
            FinalizedFeatureKey(name=feature, max_version_level=i16(level), min_version_level=i16(level))
            for feature, level in finalized
            if level > 0
        ),
    )


def unsupported_version() -> ApiVersionsResponse:
    """The answer to a version of ApiVersions that is not known here."""
    return ApiVersionsResponse(
        error_code=ErrorCode.unsupported_version,
        api_keys=(_entry(BY_KEY[ApiKey.API_VERSIONS]),),
        throttle_time=NO_THROTTLE,
    )


def _entry(api: Api) -> ApiVersion:
    oldest, newest = api.advertised
    return ApiVersion(api_key=i16(api.key), min_version=i16(oldest), max_version=i16(newest))
