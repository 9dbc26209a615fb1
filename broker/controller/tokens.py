"""Delegation tokens: what a request makes of them. Each function plans one change of the metadata.

Order of the refusals, as in Kafka: not found, expired, not the client's own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from klamm.broker.controller.changes import Change
from klamm.broker.metadata import paths, security_nodes
from klamm.broker.metadata.image import MetadataImage
from klamm.broker.metadata.store import Create, Delete, Operation, Set
from klamm.broker.security.tokens import DelegationToken, TokenKeys, new_token_id
from klamm.protocol.errors import DelegationTokenExpired, DelegationTokenNotFound, DelegationTokenOwnerMismatch

if TYPE_CHECKING:
    from klamm.config import BrokerConfig

Plan = Callable[[MetadataImage], Change[DelegationToken]]


@dataclass(frozen=True, slots=True)
class Lifetimes:
    """How long tokens live, in ms."""

    most_ms: int
    renewal_ms: int

    @classmethod
    def from_config(cls, config: BrokerConfig) -> Lifetimes:
        return cls(
            config.integer("delegation.token.max.lifetime.ms"), config.integer("delegation.token.expiry.time.ms")
        )


def creation(
    owner: str,
    requester: str,
    renewers: Sequence[str],
    asked_ms: int,
    *,
    lifetimes: Lifetimes,
    now_ms: int,
    random_bytes: Callable[[int], bytes],
) -> Plan:
    """Plan a new token; `asked_ms` is the longest life that was asked for, if it is above 0."""

    def plan(image: MetadataImage) -> Change[DelegationToken]:
        max_ms = now_ms + (min(lifetimes.most_ms, asked_ms) if asked_ms > 0 else lifetimes.most_ms)
        expiry_ms = min(max_ms, now_ms + lifetimes.renewal_ms)
        token_id = new_token_id(random_bytes)
        token = DelegationToken(token_id, owner, requester, tuple(renewers), now_ms, max_ms, expiry_ms)
        operations = [Create(paths.token(token_id), security_nodes.token_value(token), make_parents=True)]
        return Change(token, operations, image.with_tokens({token_id: token}))

    return plan


def renewal(keys: TokenKeys, wanted: bytes, principal: str, period_ms: int, lifetimes: Lifetimes, now_ms: int) -> Plan:
    """Plan a later expiry, never after the end of the token's life."""

    def plan(image: MetadataImage) -> Change[DelegationToken]:
        token = _own(image, keys, wanted, principal, now_ms, also_expired=False)
        added_ms = min(period_ms, lifetimes.renewal_ms) if period_ms > 0 else lifetimes.renewal_ms
        return _changed(image, replace(token, expiry_ms=min(token.max_ms, now_ms + added_ms)))

    return plan


def expiry(keys: TokenKeys, wanted: bytes, principal: str, period_ms: int, now_ms: int) -> Plan:
    """Plan another expiry; a negative period takes the token away at once, also one that has expired."""

    def plan(image: MetadataImage) -> Change[DelegationToken]:
        token = _own(image, keys, wanted, principal, now_ms, also_expired=period_ms < 0)
        if period_ms >= 0:
            return _changed(image, replace(token, expiry_ms=min(token.max_ms, now_ms + period_ms)))
        gone = replace(token, expiry_ms=now_ms)
        return Change(gone, [Delete(paths.token(token.token_id))], image.with_tokens({token.token_id: None}))

    return plan


def sweep(now_ms: int) -> Callable[[MetadataImage], Change[int]]:
    """Plan the removal of all tokens that have expired; the result is their number."""

    def plan(image: MetadataImage) -> Change[int]:
        gone = [token.token_id for token in image.tokens.values() if token.expiry_ms < now_ms]
        if not gone:
            return Change(0)
        operations: list[Operation] = [Delete(paths.token(token_id)) for token_id in gone]
        return Change(len(gone), operations, image.with_tokens(dict.fromkeys(gone)))

    return plan


def _own(
    image: MetadataImage, keys: TokenKeys, wanted: bytes, principal: str, now_ms: int, *, also_expired: bool
) -> DelegationToken:
    token = keys.find(image.tokens, wanted)
    if token is None:
        raise DelegationTokenNotFound("there is no token with this HMAC")
    if not also_expired and (token.max_ms < now_ms or token.expiry_ms < now_ms):
        raise DelegationTokenExpired("the token has expired")
    if not token.belongs_to(principal):
        raise DelegationTokenOwnerMismatch("the token belongs to another user, and you are not one of its renewers")
    return token


def _changed(image: MetadataImage, token: DelegationToken) -> Change[DelegationToken]:
    operations = [Set(paths.token(token.token_id), security_nodes.token_value(token))]
    return Change(token, operations, image.with_tokens({token.token_id: token}))
