"""How brokers of one cluster prove to each other that they are: both know the cluster's secret, and neither sends it.

    initiator → acceptor   BrokerHello: the cluster, both broker ids, a nonce
    acceptor → initiator   a nonce of its own
    initiator → acceptor   BrokerProof: the initiator's proof
    acceptor → initiator   the acceptor's proof, if the other one was right

A proof is an HMAC-SHA256, with the secret as its key, over who proves it (so that nobody's proof can be sent back to
it), the cluster's id, the ids of the two brokers in their roles, and both nonces (so that none can be used twice). It
proves who made the connection, and protects nothing that is sent over it afterwards.
"""

from __future__ import annotations

import hashlib
import hmac
import struct
from typing import Final, NamedTuple

NONCE_BYTES: Final = 32
SECRET_BYTES: Final = 32

_PURPOSE: Final = b"barnabas broker proof v1"
_INITIATOR: Final = b"initiator"
_ACCEPTOR: Final = b"acceptor"
_LENGTH: Final = struct.Struct(">I")
_ID: Final = struct.Struct(">i")


class Introduction(NamedTuple):
    """The ids and nonces of both brokers, which the proofs are made of."""

    cluster_id: str
    initiator: int
    acceptor: int
    initiator_nonce: bytes
    acceptor_nonce: bytes

    def initiator_proof(self, secret: bytes) -> bytes:
        """The proof of the broker that made the connection."""
        return self._proof(secret, _INITIATOR)

    def acceptor_proof(self, secret: bytes) -> bytes:
        """The proof of the broker that accepted the connection."""
        return self._proof(secret, _ACCEPTOR)

    def _proof(self, secret: bytes, role: bytes) -> bytes:
        if len(secret) != SECRET_BYTES:
            raise ValueError(f"a cluster's secret has {SECRET_BYTES} bytes, not {len(secret)}")
        parts = (
            _PURPOSE,
            role,
            self.cluster_id.encode(),
            _ID.pack(self.initiator),
            _ID.pack(self.acceptor),
            self.initiator_nonce,
            self.acceptor_nonce,
        )
        message = b"".join(_LENGTH.pack(len(part)) + part for part in parts)
        return hmac.new(secret, message, hashlib.sha256).digest()


def is_same(proof: bytes, expected: bytes) -> bool:
    """Whether a proof is right; compared in constant time."""
    return hmac.compare_digest(proof, expected)
