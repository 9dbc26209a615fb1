"""DescribeDelegationToken (KIP-48): list the tokens of some owners, or (null) all that the caller may see.

v2 is flexible; v3 reports the requester of each token beside its owner (KIP-373). Apache Kafka 4.0 dropped v0, which
had the layout of v1.
"""

from __future__ import annotations

from klamm.protocol.schema import field, message, struct
from klamm.protocol.wire import Bytes, Int16, Int32, Int64, String


@struct
class DescribeDelegationTokenOwner:
    principal_type: String = field()
    principal_name: String = field()


@message(key=41, kind="request", versions="0-3", flexible="2+")
class DescribeDelegationTokenRequest:
    owners: list[DescribeDelegationTokenOwner] | None = field(nullable="0+")


@struct
class DescribedDelegationTokenRenewer:
    principal_type: String = field()
    principal_name: String = field()


@struct
class DescribedDelegationToken:
    principal_type: String = field()
    principal_name: String = field()
    token_requester_principal_type: String = field("3+")
    token_requester_principal_name: String = field("3+")
    issue_timestamp: Int64 = field()
    expiry_timestamp: Int64 = field()
    max_timestamp: Int64 = field()
    token_id: String = field()
    hmac: Bytes = field(sensitive=True)
    renewers: list[DescribedDelegationTokenRenewer] = field()


@message(key=41, kind="response", versions="0-3", flexible="2+")
class DescribeDelegationTokenResponse:
    error_code: Int16 = field()
    tokens: list[DescribedDelegationToken] = field()
    throttle_time_ms: Int32 = field()
