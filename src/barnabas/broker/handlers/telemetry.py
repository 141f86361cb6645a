"""GetTelemetrySubscriptions v0, PushTelemetry v0: metrics of clients (KIP-714), for a receiver that was configured.

Without telemetry.otlp.endpoint neither is served nor advertised, as with Kafka without a receiver.

- GetTelemetrySubscriptions tells a client its id, what to send, how often, and with which compressions. A client that
  asks again too early has THROTTLING_QUOTA_EXCEEDED.
- PushTelemetry: TELEMETRY_TOO_LARGE for more than telemetry.max.bytes, and for what becomes more than eight times that
  when it is uncompressed. UNKNOWN_SUBSCRIPTION_ID, UNSUPPORTED_COMPRESSION_TYPE, INVALID_RECORD for what cannot be
  uncompressed, INVALID_REQUEST without a client id and after the last push of a client. A push is answered when it was
  taken, not when it was sent on.

Not implemented: subscriptions by client (config resources of type client-metrics). All clients have the same.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from kio.schema.get_telemetry_subscriptions.v0.response import GetTelemetrySubscriptionsResponse
from kio.schema.push_telemetry.v0.response import PushTelemetryResponse
from kio.static.primitive import i8, i32, i32Timedelta

from barnabas.broker.metrics.telemetry import ACCEPTED
from barnabas.broker.serving.throttle import NO_THROTTLE
from barnabas.model.errors import ErrorCode, UnsupportedVersion
from barnabas.model.ids import NO_ID

if TYPE_CHECKING:
    from kio.schema.get_telemetry_subscriptions.v0.request import GetTelemetrySubscriptionsRequest
    from kio.schema.push_telemetry.v0.request import PushTelemetryRequest

    from barnabas.broker.context import BrokerContext
    from barnabas.broker.metrics.telemetry import TelemetryReceiver
    from barnabas.broker.serving.caller import Caller


def _receiver(broker: BrokerContext) -> TelemetryReceiver:
    if broker.telemetry is None:
        raise UnsupportedVersion("This broker takes no metrics of clients: telemetry.otlp.endpoint is not set.")
    return broker.telemetry


def get_telemetry_subscriptions(
    broker: BrokerContext, request: GetTelemetrySubscriptionsRequest, caller: Caller
) -> GetTelemetrySubscriptionsResponse:
    """Tell a client what to send."""
    receiver = _receiver(broker)
    subscription = receiver.clients.subscription
    client_id, code = receiver.clients.ask(request.client_instance_id or NO_ID, broker.clock.now_ms())
    return GetTelemetrySubscriptionsResponse(
        throttle_time=NO_THROTTLE,
        error_code=code,
        client_instance_id=client_id,
        subscription_id=i32(subscription.id),
        accepted_compression_types=tuple(i8(codec) for codec in ACCEPTED),
        push_interval=i32Timedelta.parse(timedelta(milliseconds=subscription.interval_ms)),
        telemetry_max_bytes=i32(receiver.max_bytes),
        delta_temporality=True,
        requested_metrics=subscription.metrics,
    )


async def push_telemetry(broker: BrokerContext, request: PushTelemetryRequest, caller: Caller) -> PushTelemetryResponse:
    """Take a client's metrics."""
    receiver = _receiver(broker)
    client_id = request.client_instance_id or NO_ID
    code = receiver.clients.push(
        client_id, request.subscription_id, terminating=request.terminating, now_ms=broker.clock.now_ms()
    )
    if code is ErrorCode.none:
        code = await _take(broker, receiver, request, caller)
    return PushTelemetryResponse(throttle_time=NO_THROTTLE, error_code=code)


async def _take(
    broker: BrokerContext, receiver: TelemetryReceiver, request: PushTelemetryRequest, caller: Caller
) -> ErrorCode:
    client_id, compression, metrics = request.client_instance_id or NO_ID, request.compression_type, request.metrics
    unpacking = broker.validation_pool.start(len(metrics), lambda: receiver.unpack(compression, metrics))
    if unpacking is None:
        return ErrorCode.throttling_quota_exceeded
    unpacked = await unpacking
    if unpacked is ErrorCode.unsupported_compression_type:
        return receiver.clients.refuse_compression(client_id)
    if isinstance(unpacked, ErrorCode):
        return unpacked
    receiver.take(client_id, caller, unpacked)
    return ErrorCode.none
