"""DescribeUserScramCredentials (KIP-554): mechanisms and iteration counts of users (null: of all), never the secrets.

Mechanism 1 is SCRAM-SHA-256, 2 is SCRAM-SHA-512.
"""

from __future__ import annotations

from klamm.protocol.schema import field, message, struct
from klamm.protocol.wire import Int8, Int16, Int32, String


@struct
class UserName:
    name: String = field()


@message(key=50, kind="request", versions="0", flexible="0+")
class DescribeUserScramCredentialsRequest:
    users: list[UserName] | None = field(nullable="0+")


@struct
class CredentialInfo:
    mechanism: Int8 = field()
    iterations: Int32 = field()


@struct
class DescribeUserScramCredentialsResult:
    user: String = field()
    error_code: Int16 = field()
    error_message: String | None = field(nullable="0+")
    credential_infos: list[CredentialInfo] = field()


@message(key=50, kind="response", versions="0", flexible="0+")
class DescribeUserScramCredentialsResponse:
    throttle_time_ms: Int32 = field()
    error_code: Int16 = field()
    error_message: String | None = field(nullable="0+")
    results: list[DescribeUserScramCredentialsResult] = field()
