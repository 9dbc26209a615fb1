"""SCRAM (RFC 5802) with SHA-256 and SHA-512 (RFC 7677): the part shared by client, broker and tools.

The proof of a password, and the values that a broker stores:

    salted_password  = PBKDF2(password, salt, iterations)
    client_key       = HMAC(salted_password, "Client Key")      stored_key = H(client_key)
    server_key       = HMAC(salted_password, "Server Key")
    auth_message     = client-first without its GS2 header + "," + server-first + "," + client-final without its proof
    proof            = client_key XOR HMAC(stored_key, auth_message)
    server_signature = HMAC(server_key, auth_message)

A broker stores salt, iterations, stored_key and server_key: enough to check a proof, not to make one. Passwords
are UTF-8 and not normalized, as in Apache Kafka. The caller supplies the random bytes.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

MIN_ITERATIONS: Final = 4096
MAX_ITERATIONS: Final = 16384
RANDOM_BITS: Final = 130
_DIGITS: Final = "0123456789abcdefghijklmnopqrstuvwxyz"


@dataclass(frozen=True, slots=True)
class ScramMechanism:
    """A mechanism: `number` identifies it in requests and records, `digest` is the name of its hash."""

    name: str
    number: int
    digest: str
    size: int


SCRAM_SHA_256: Final = ScramMechanism("SCRAM-SHA-256", 1, "sha256", 32)
SCRAM_SHA_512: Final = ScramMechanism("SCRAM-SHA-512", 2, "sha512", 64)
BY_NAME: Final = {mechanism.name: mechanism for mechanism in (SCRAM_SHA_256, SCRAM_SHA_512)}
BY_NUMBER: Final = {mechanism.number: mechanism for mechanism in BY_NAME.values()}


@dataclass(frozen=True, slots=True)
class ScramCredential:
    """The values that a broker stores for one user and mechanism. The repr shows only the iterations."""

    salt: bytes = field(repr=False)
    stored_key: bytes = field(repr=False)
    server_key: bytes = field(repr=False)
    iterations: int


def salt_password(mechanism: ScramMechanism, password: str, salt: bytes, iterations: int) -> bytes:
    """Return the salted password. Takes milliseconds, by design, and releases the interpreter lock."""
    return hashlib.pbkdf2_hmac(mechanism.digest, password.encode(), salt, iterations)


def credential_of(mechanism: ScramMechanism, salted_password: bytes, salt: bytes, iterations: int) -> ScramCredential:
    """Make the credential that is stored for a salted password."""
    key = client_key(mechanism, salted_password)
    return ScramCredential(
        salt=salt,
        stored_key=hash_of(mechanism, key),
        server_key=hmac.digest(salted_password, b"Server Key", mechanism.digest),
        iterations=iterations,
    )


def client_key(mechanism: ScramMechanism, salted_password: bytes) -> bytes:
    return hmac.digest(salted_password, b"Client Key", mechanism.digest)


def hash_of(mechanism: ScramMechanism, data: bytes) -> bytes:
    return hashlib.new(mechanism.digest, data).digest()


def signature(mechanism: ScramMechanism, key: bytes, auth_message: bytes) -> bytes:
    """Return the client's (`key` is the stored key) or the server's signature of a conversation."""
    return hmac.digest(key, auth_message, mechanism.digest)


def proof_of(mechanism: ScramMechanism, salted_password: bytes, auth_message: bytes) -> bytes:
    """Return the proof that a client sends."""
    key = client_key(mechanism, salted_password)
    return xor(key, signature(mechanism, hash_of(mechanism, key), auth_message))


def is_proof(mechanism: ScramMechanism, credential: ScramCredential, proof: bytes, auth_message: bytes) -> bool:
    """Return whether `proof` matches the credential's password, in a time that does not depend on the difference."""
    if len(proof) != mechanism.size:
        return False
    key = xor(proof, signature(mechanism, credential.stored_key, auth_message))
    return hmac.compare_digest(hash_of(mechanism, key), credential.stored_key)


def xor(one: bytes, other: bytes) -> bytes:
    assert len(one) == len(other)
    return (int.from_bytes(one, "big") ^ int.from_bytes(other, "big")).to_bytes(len(one), "big")


def escape_name(name: str) -> str:
    """Return a user name in the form of a message, where `,` and `=` end names."""
    return name.replace("=", "=3D").replace(",", "=2C")


def unescape_name(text: str) -> str:
    return text.replace("=2C", ",").replace("=3D", "=")


def random_text(random_bytes: Callable[[int], bytes]) -> str:
    """Return a nonce, or a salt, in the form of Apache Kafka's: 130 random bits as some 25 letters and digits."""
    return base36(random_bytes((RANDOM_BITS + 7) // 8))


def base36(data: bytes) -> str:
    """Return the first 130 bits of `data` as a number in letters and digits."""
    number = int.from_bytes(data, "big") >> (len(data) * 8 - RANDOM_BITS)
    text = ""
    while number:
        number, digit = divmod(number, len(_DIGITS))
        text = _DIGITS[digit] + text
    return text or _DIGITS[0]
