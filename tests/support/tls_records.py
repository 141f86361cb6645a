"""Records of TLS 1.3 that Python's clients cannot send: encrypted here, with the secret that a client has logged."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final

from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA384
from cryptography.hazmat.primitives.kdf.hkdf import HKDFExpand

if TYPE_CHECKING:
    from pathlib import Path

SUITE: Final = "TLS_AES_256_GCM_SHA384"
"""The cipher suite that these records are of."""
HANDSHAKE: Final = 22
DATA: Final = 23
"""Types of records."""
_KEY_UPDATE: Final = bytes([24, 0, 0, 1, 0])
"""The message: no answer is wanted."""
_SECRET: Final = "CLIENT_TRAFFIC_SECRET_0"


class ForgedRecords:
    """What comes after the handshake of a client that has sent nothing since and logs its secrets into a file."""

    def __init__(self, keys: Path) -> None:
        logged = [line.split() for line in keys.read_text().splitlines()]
        (secret,) = (bytes.fromhex(fields[2]) for fields in logged if fields[0] == _SECRET)
        self._use(secret)

    def record(self, content: bytes, kind: int = DATA) -> bytes:
        """One record."""
        inner = content + bytes([kind])
        head = struct.pack(">BHH", DATA, 0x0303, len(inner) + 16)
        nonce = (int.from_bytes(self._iv, "big") ^ self._sent).to_bytes(12, "big")
        self._sent += 1
        return head + self._cipher.encrypt(nonce, inner, head)

    def key_update(self) -> bytes:
        """A record after which others are encrypted with the next key."""
        record = self.record(_KEY_UPDATE, HANDSHAKE)
        self._use(_expand(self._secret, b"traffic upd", 48))
        return record

    def _use(self, secret: bytes) -> None:
        self._secret = secret
        self._cipher = AESGCM(_expand(secret, b"key", 32))
        self._iv = _expand(secret, b"iv", 12)
        self._sent = 0


def _expand(secret: bytes, label: bytes, length: int) -> bytes:
    """HKDF-Expand-Label of RFC 8446, without a context."""
    label = b"tls13 " + label
    info = struct.pack(">HB", length, len(label)) + label + b"\0"
    return HKDFExpand(SHA384(), length, info).derive(secret)
