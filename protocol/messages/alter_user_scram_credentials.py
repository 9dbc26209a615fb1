"""AlterUserScramCredentials (KIP-554): remove, and insert or replace, the SCRAM credentials of users.

The client salts and hashes: the password itself never travels. Mechanism 1 is SCRAM-SHA-256, 2 is SCRAM-SHA-512.
"""

from __future__ import annotations

from klamm.protocol.schema import field, message, struct
from klamm.protocol.wire import Bytes, Int8, Int16, Int32, String


@struct
class ScramCredentialDeletion:
    name: String = field()
    mechanism: Int8 = field()


@struct
class ScramCredentialUpsertion:
    name: String = field()
    mechanism: Int8 = field()
    iterations: Int32 = field()
    salt: Bytes = field(sensitive=True)
    salted_password: Bytes = field(sensitive=True)


@message(key=51, kind="request", versions="0", flexible="0+")
class AlterUserScramCredentialsRequest:
    deletions: list[ScramCredentialDeletion] = field()
    upsertions: list[ScramCredentialUpsertion] = field()


@struct
class AlterUserScramCredentialsResult:
    user: String = field()
    error_code: Int16 = field()
    error_message: String | None = field(nullable="0+")


@message(key=51, kind="response", versions="0", flexible="0+")
class AlterUserScramCredentialsResponse:
    throttle_time_ms: Int32 = field()
    results: list[AlterUserScramCredentialsResult] = field()
