"""The nodes of delegation tokens: path, encode, decode, as in Kafka's ZooKeeper mode."""

from __future__ import annotations

import re
from urllib.parse import unquote

from barnabas.machines.security.delegation_tokens import TokenInfo
from barnabas.metadata.znodes import MalformedNode, dump, load, quoted


class DelegationTokensNode:
    """The folder of delegation tokens."""

    path = "/delegation_token/tokens"


class DelegationTokenNode:
    """What is said of one delegation token; what it is accepted by is not stored."""

    _ID = re.compile(r"[A-Za-z0-9_-]{22}")

    @staticmethod
    def is_id(text: str) -> bool:
        """Whether this can be the id of a token."""
        return DelegationTokenNode._ID.fullmatch(text) is not None

    @staticmethod
    def path(token_id: str) -> str:
        """Below the folder of tokens."""
        return f"{DelegationTokensNode.path}/{token_id}"

    @staticmethod
    def encode(token: TokenInfo) -> bytes:
        """Version 3."""
        return dump(
            {
                "version": 3,
                "owner": quoted(token.owner),
                "tokenRequester": quoted(token.requester),
                "renewers": [quoted(renewer) for renewer in token.renewers],
                "issueTimestamp": token.issued_ms,
                "maxTimestamp": token.ends_ms,
                "expiryTimestamp": token.expires_ms,
                "tokenId": token.token_id,
            }
        )

    @staticmethod
    def decode(path: str, data: bytes) -> TokenInfo:
        """Versions 1 to 3; before 3 whoever asked for a token was its owner."""
        value = load(path, data)
        try:
            owner = unquote(value["owner"])
            return TokenInfo(
                token_id=str(value["tokenId"]),
                owner=owner,
                requester=unquote(value.get("tokenRequester", value["owner"])),
                renewers=tuple(unquote(renewer) for renewer in value["renewers"]),
                issued_ms=int(value["issueTimestamp"]),
                ends_ms=int(value["maxTimestamp"]),
                expires_ms=int(value["expiryTimestamp"]),
            )
        except (KeyError, ValueError, TypeError, AttributeError) as error:
            raise MalformedNode(path, data, error) from error
