"""How another broker proves that it is one: BrokerHello v0, BrokerProof v0.

Kafka has neither; ApiVersions does not name them. Anybody may send them, on any listener: while the listener
of brokers is changed by a roll, those with the old and those with the new setting talk to each other. After a right
proof, the connection may send the requests that only brokers may send.

- BrokerHello names the cluster (otherwise INCONSISTENT_CLUSTER_ID) and both brokers (CLUSTER_AUTHORIZATION_FAILED if
  the one asked is not this one), and is answered with a nonce. What was proved before on the connection is forgotten.
- BrokerProof comes once after each BrokerHello; one that is wrong gets CLUSTER_AUTHORIZATION_FAILED.
"""

from __future__ import annotations

import logging
import secrets
from typing import TYPE_CHECKING

from barnabas.metadata.stores.store import StoreError
from barnabas.model.errors import ClusterAuthorizationFailed, ErrorCode, InconsistentClusterId
from barnabas.protocol.messages import inter_broker
from barnabas.protocol.messages.broker_proof import NONCE_BYTES, Introduction, is_same

if TYPE_CHECKING:
    from barnabas.broker.context import BrokerContext
    from barnabas.broker.serving.caller import Caller

logger = logging.getLogger(__name__)


def hello(
    broker: BrokerContext, request: inter_broker.BrokerHelloRequest, caller: Caller
) -> inter_broker.BrokerHelloResponse:
    """Note which broker the caller claims to be, and send the nonce for its proof."""
    session = caller.session
    session.broker_id = session.introduction = None
    cluster_id = broker.metadata.image.cluster_id
    if request.cluster_id != cluster_id:
        raise InconsistentClusterId(f"This is cluster {cluster_id}, not {request.cluster_id}.")
    if request.peer_id != broker.broker_id or request.broker_id in (broker.broker_id, -1):
        raise ClusterAuthorizationFailed(f"This is broker {broker.broker_id}, not {request.peer_id}.")
    if len(request.nonce) != NONCE_BYTES:
        raise ClusterAuthorizationFailed(f"A nonce has {NONCE_BYTES} bytes, not {len(request.nonce)}.")
    nonce = secrets.token_bytes(NONCE_BYTES)
    session.introduction = Introduction(
        cluster_id=cluster_id,
        initiator=request.broker_id,
        acceptor=broker.broker_id,
        initiator_nonce=request.nonce,
        acceptor_nonce=nonce,
    )
    return inter_broker.BrokerHelloResponse(error_code=ErrorCode.none, nonce=nonce)


def proof(
    broker: BrokerContext, request: inter_broker.BrokerProofRequest, caller: Caller
) -> inter_broker.BrokerProofResponse:
    """Accept the caller as the broker that it claims to be, if it knows the cluster's secret."""
    session = caller.session
    introduction, session.introduction = session.introduction, None
    if introduction is None:
        raise ClusterAuthorizationFailed("BrokerProof must follow a BrokerHello, once.")
    try:
        secret = broker.handshake.secret()
    except StoreError as error:
        raise ClusterAuthorizationFailed(f"This broker cannot read the cluster's secret: {error}") from error
    if not is_same(request.proof, introduction.initiator_proof(secret)):
        logger.warning(
            "Refused client %r at %s: it claims to be broker %d, but does not know the cluster's secret.",
            *caller.named,
            introduction.initiator,
        )
        raise ClusterAuthorizationFailed("The proof is wrong: it was not made with this cluster's secret.")
    session.broker_id = introduction.initiator
    return inter_broker.BrokerProofResponse(error_code=ErrorCode.none, proof=introduction.acceptor_proof(secret))
