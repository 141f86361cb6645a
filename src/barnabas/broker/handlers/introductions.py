"""How another broker proves that it is one: BrokerHello v0, BrokerProof v0.

Kafka has neither; ApiVersions does not name them. Anybody may ask them, on the listener that brokers use if they have
one for themselves, and whoever has done so rightly may ask on that connection what only brokers may.

- BrokerHello names the cluster (otherwise INCONSISTENT_CLUSTER_ID) and both brokers (CLUSTER_AUTHORIZATION_FAILED if
  the one asked is not this one), and is answered with a nonce. What was proved before on the connection is forgotten.
- BrokerProof comes once after each BrokerHello; one that is wrong gets CLUSTER_AUTHORIZATION_FAILED.
"""

from __future__ import annotations

import logging
import secrets
from typing import TYPE_CHECKING

from barnabas.metadata.store import StoreError
from barnabas.model.errors import ClusterAuthorizationFailed, ErrorCode, InconsistentClusterId
from barnabas.protocol import internal
from barnabas.protocol.broker_proof import NONCE_BYTES, Introduction, is_same

if TYPE_CHECKING:
    from barnabas.broker.caller import Caller
    from barnabas.broker.context import Broker

logger = logging.getLogger(__name__)


def hello(broker: Broker, request: internal.BrokerHelloRequest, caller: Caller) -> internal.BrokerHelloResponse:
    """Take note of who somebody says it is, and ask for a proof."""
    peer = caller.peer
    peer.broker_id = peer.introduction = None
    cluster_id = broker.metadata.image.cluster_id
    if request.cluster_id != cluster_id:
        raise InconsistentClusterId(f"this is cluster {cluster_id}, not {request.cluster_id}")
    if broker.has_listener_for_brokers and caller.listener != broker.settings.static.inter_broker_listener:
        raise ClusterAuthorizationFailed("brokers have a listener for themselves, and this is another one")
    if request.peer_id != broker.broker_id or request.broker_id in (broker.broker_id, -1):
        raise ClusterAuthorizationFailed(f"this is broker {broker.broker_id}, not {request.peer_id}")
    if len(request.nonce) != NONCE_BYTES:
        raise ClusterAuthorizationFailed(f"a nonce has {NONCE_BYTES} bytes, not {len(request.nonce)}")
    nonce = secrets.token_bytes(NONCE_BYTES)
    peer.introduction = Introduction(
        cluster_id=cluster_id,
        initiator=request.broker_id,
        acceptor=broker.broker_id,
        initiator_nonce=request.nonce,
        acceptor_nonce=nonce,
    )
    return internal.BrokerHelloResponse(error_code=ErrorCode.none, nonce=nonce)


def proof(broker: Broker, request: internal.BrokerProofRequest, caller: Caller) -> internal.BrokerProofResponse:
    """From now on take the other end for the broker that it said it is, if it knows the cluster's secret."""
    peer = caller.peer
    introduction, peer.introduction = peer.introduction, None
    if introduction is None:
        raise ClusterAuthorizationFailed("a proof comes after a BrokerHello, once")
    try:
        secret = broker.cluster.introducer.secret()
    except StoreError as error:
        raise ClusterAuthorizationFailed(f"this broker does not know the cluster's secret now: {error}") from error
    if not is_same(request.proof, introduction.initiator_proof(secret)):
        logger.warning("%r at %s says it is broker %d, and cannot prove it", *caller.named, introduction.initiator)
        raise ClusterAuthorizationFailed("the proof is wrong: the cluster's secret is another one")
    peer.broker_id = introduction.initiator
    return internal.BrokerProofResponse(error_code=ErrorCode.none, proof=introduction.acceptor_proof(secret))
