"""CreateDelegationToken (KIP-48): issue a token that workers can log in with instead of the owner's own secret.

v2 is flexible; v3 lets one principal request a token in the name of another and reports the requester (KIP-373). Apache
Kafka 4.0 dropped v0, which had the layout of v1. Unusually, the throttle time comes last.
"""

from __future__ import annotations

from klamm.protocol.schema import field, message, struct
from klamm.protocol.wire import Bytes, Int16, Int32, Int64, String


@struct
class CreatableRenewers:
    principal_type: String = field()
    principal_name: String = field()


@message(key=38, kind="request", versions="0-3", flexible="2+")
class CreateDelegationTokenRequest:
    owner_principal_type: String | None = field("3+", nullable="3+")  # null: the requester owns it
    owner_principal_name: String | None = field("3+", nullable="3+")
    renewers: list[CreatableRenewers] = field()
    max_lifetime_ms: Int64 = field()


@message(key=38, kind="response", versions="0-3", flexible="2+")
class CreateDelegationTokenResponse:
    error_code: Int16 = field()
    principal_type: String = field()
    principal_name: String = field()
    token_requester_principal_type: String = field("3+")
    token_requester_principal_name: String = field("3+")
    issue_timestamp_ms: Int64 = field()
    expiry_timestamp_ms: Int64 = field()
    max_timestamp_ms: Int64 = field()
    token_id: String = field()
    hmac: Bytes = field(sensitive=True)
    throttle_time_ms: Int32 = field()
