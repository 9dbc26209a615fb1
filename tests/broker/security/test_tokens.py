"""Delegation tokens over the wire, at every version, with logins by token."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from klamm.broker.security.tokens import DelegationToken, TokenKeys
from klamm.protocol.messages.create_delegation_token import CreatableRenewers, CreateDelegationTokenRequest
from klamm.protocol.messages.describe_delegation_token import (
    DescribeDelegationTokenOwner,
    DescribeDelegationTokenRequest,
)
from klamm.protocol.messages.expire_delegation_token import ExpireDelegationTokenRequest
from klamm.protocol.messages.renew_delegation_token import RenewDelegationTokenRequest
from klamm.protocol.scram import SCRAM_SHA_256, ScramCredential
from tests.broker.tools.test_kafka_import import kraft
from tests.support.embedded import NOW_MS, EmbeddedBroker

NOT_FOUND, NOT_ALLOWED, DISABLED, MISMATCH, EXPIRED, BAD_TYPE = 62, 64, 61, 63, 66, 67
CONFIG = {
    "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
    "sasl.enabled.mechanisms": "SCRAM-SHA-256",
    "delegation.token.secret.key": "the secret",
}
DAY_MS = 86_400_000


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(tmp_path, CONFIG) as embedded:
        log_in(embedded, "alice")
        yield embedded


def log_in(broker: EmbeddedBroker, user: str, *, by_token: bool = False, listener: str = "SASL_PLAINTEXT") -> None:
    broker.connection.principal = f"User:{user}"
    broker.connection.is_token_login = by_token
    broker.connection.listener = listener


def create(broker: EmbeddedBroker, version: int = 3, *, renewers: tuple[str, ...] = (), **fields: Any) -> Any:
    request = CreateDelegationTokenRequest(
        renewers=[CreatableRenewers(principal_type="User", principal_name=name) for name in renewers],
        max_lifetime_ms=fields.pop("max_lifetime_ms", -1),
        **({"owner_principal_type": None, "owner_principal_name": None, **fields} if version >= 3 else {}),
    )
    return broker.call(request, version)


def renew(broker: EmbeddedBroker, hmac: bytes, period_ms: int = -1, version: int = 2) -> Any:
    return broker.call(RenewDelegationTokenRequest(hmac=hmac, renew_period_ms=period_ms), version)


def expire(broker: EmbeddedBroker, hmac: bytes, period_ms: int = -1, version: int = 2) -> Any:
    return broker.call(ExpireDelegationTokenRequest(hmac=hmac, expiry_time_period_ms=period_ms), version)


def described(broker: EmbeddedBroker, *owners: str, everybody: bool = False, version: int = 3) -> list[Any]:
    names = [DescribeDelegationTokenOwner(principal_type="User", principal_name=name) for name in owners]
    response = broker.call(DescribeDelegationTokenRequest(owners=None if everybody else names), version)
    assert response.error_code == 0
    return list(response.tokens)


@pytest.mark.parametrize("version", [1, 2, 3])
def test_a_token_is_made_described_renewed_and_expired(broker: EmbeddedBroker, version: int) -> None:
    made = create(broker, version, renewers=("bob",))
    assert made.error_code == 0
    assert (made.principal_type, made.principal_name) == ("User", "alice")
    assert (made.issue_timestamp_ms, made.max_timestamp_ms) == (NOW_MS, NOW_MS + 7 * DAY_MS)
    assert made.expiry_timestamp_ms == NOW_MS + DAY_MS
    assert (len(made.token_id), len(made.hmac)) == (22, 64)
    (token,) = described(broker, everybody=True, version=version)
    assert (token.token_id, bytes(token.hmac)) == (made.token_id, made.hmac)
    assert [renewer.principal_name for renewer in token.renewers] == ["bob"]
    broker.clock.advance(3_600_000)
    older = min(version, 2)
    assert renew(broker, made.hmac, 1000, older).expiry_timestamp_ms == NOW_MS + 3_601_000
    assert renew(broker, made.hmac, -1, older).expiry_timestamp_ms == NOW_MS + 3_600_000 + DAY_MS
    assert expire(broker, made.hmac, 5000, older).expiry_timestamp_ms == NOW_MS + 3_605_000
    assert expire(broker, made.hmac, -1, older).error_code == 0
    assert described(broker, everybody=True, version=version) == []
    assert expire(broker, made.hmac, -1, older).error_code == NOT_FOUND


def test_lifetimes_are_bounded(broker: EmbeddedBroker) -> None:
    short = create(broker, max_lifetime_ms=1000)
    assert (short.max_timestamp_ms, short.expiry_timestamp_ms) == (NOW_MS + 1000, NOW_MS + 1000)
    assert create(broker, max_lifetime_ms=2**60).max_timestamp_ms == NOW_MS + 7 * DAY_MS
    assert renew(broker, short.hmac, 2**60).expiry_timestamp_ms == NOW_MS + 1000


def test_only_owner_requester_and_renewers_touch_a_token(broker: EmbeddedBroker) -> None:
    made = create(broker, renewers=("bob",), owner_principal_type="User", owner_principal_name="carol")
    assert (made.principal_name, made.token_requester_principal_name) == ("carol", "alice")
    for user, code in (("alice", 0), ("bob", 0), ("carol", 0), ("mallory", MISMATCH)):
        log_in(broker, user)
        assert renew(broker, made.hmac).error_code == code
    assert expire(broker, made.hmac).error_code == MISMATCH
    assert [token.token_id for token in described(broker, "carol")] == [made.token_id]
    assert described(broker, "alice") == described(broker) == []


def test_security_row_59_where_tokens_are_not_given(broker: EmbeddedBroker) -> None:
    made = create(broker)
    for refused in (
        lambda: log_in(broker, "alice", by_token=True),
        lambda: log_in(broker, "alice", listener="PLAINTEXT"),
        lambda: log_in(broker, "ANONYMOUS", listener="nowhere"),
    ):
        refused()
        assert create(broker).error_code == NOT_ALLOWED
        assert renew(broker, made.hmac).error_code == NOT_ALLOWED
        assert expire(broker, made.hmac).error_code == NOT_ALLOWED
        assert broker.call(DescribeDelegationTokenRequest(owners=None), 3).error_code == NOT_ALLOWED
    log_in(broker, "alice")
    for hmac in (b"", b"x" * 64, b"x" * (1 << 20)):
        assert renew(broker, hmac).error_code == NOT_FOUND
    renewer = CreatableRenewers(principal_type="Group", principal_name="g")
    assert broker.call(CreateDelegationTokenRequest(renewers=[renewer], max_lifetime_ms=-1), 1).error_code == BAD_TYPE


def test_without_a_secret_key_there_are_no_tokens(tmp_path: Path) -> None:
    with EmbeddedBroker(tmp_path, {name: CONFIG[name] for name in CONFIG if name.startswith(("l", "s"))}) as embedded:
        log_in(embedded, "alice")
        assert create(embedded).error_code == DISABLED


def test_an_expired_token_can_only_be_taken_away_and_is_swept(broker: EmbeddedBroker) -> None:
    made, other = create(broker, max_lifetime_ms=1000), create(broker)
    broker.clock.advance(2000)
    assert renew(broker, made.hmac).error_code == EXPIRED
    assert expire(broker, made.hmac, 10).error_code == EXPIRED
    assert expire(broker, made.hmac, -1).error_code == 0
    from klamm.broker.controller.tokens import sweep

    broker.clock.advance(8 * DAY_MS)
    assert broker.run(broker.broker.controller.change_tokens(sweep(broker.clock.wall_ms()))) == 1
    assert renew(broker, other.hmac).error_code == NOT_FOUND


def test_tokens_survive_a_restart_and_have_no_secret_on_disk(tmp_path: Path) -> None:
    with EmbeddedBroker(tmp_path, CONFIG) as embedded:
        log_in(embedded, "alice")
        made = create(embedded, renewers=("bob",))
        tokens = dict(embedded.broker.image.tokens)
    stored = b"".join(path.read_bytes() for path in (tmp_path / "data").glob("klamm-metadata*"))
    assert made.hmac not in stored
    assert base64.b64encode(made.hmac) not in stored
    with EmbeddedBroker(tmp_path, CONFIG) as embedded:
        log_in(embedded, "bob")
        assert embedded.broker.image.tokens == tokens
        assert renew(embedded, made.hmac).error_code == 0


def test_tokens_are_taken_over_from_kafka_and_exported_to_it(tmp_path: Path) -> None:
    from klamm.broker.metadata.security_nodes import token_record
    from klamm.broker.tools.kafka_export import export_kafka
    from klamm.broker.tools.kraft_log import read_state
    from klamm.config import BrokerConfig
    from klamm.storage.filesystem import OsFilesystem

    token = DelegationToken("id_1-x", "User:a", "User:b", ("User:c", "User:d"), NOW_MS, NOW_MS + 9, NOW_MS + 5)
    kraft(tmp_path / "data", token_record(token))
    with EmbeddedBroker(tmp_path, CONFIG) as embedded:
        assert embedded.broker.image.tokens == {"id_1-x": token}
    export_kafka(BrokerConfig({"log.dirs": str(tmp_path / "data"), "node.id": "1"}), tmp_path / "out")
    state, _ = read_state(OsFilesystem(), tmp_path / "out" / "__cluster_metadata-0")
    assert list(state.tokens.values()) == [token_record(token)]


def test_the_keys_of_ten_thousand_tokens_are_found_and_forgotten() -> None:
    tokens = {str(number): DelegationToken(str(number), "User:a", "User:a", (), 0, 1, 1) for number in range(10_000)}
    keys = TokenKeys("secret", bytes)
    found = keys.find(tokens, keys.hmac_of("9999"))
    assert found is not None
    assert found.token_id == "9999"
    fewer = {key: tokens[key] for key in ("1", "2")}
    assert keys.find(fewer, keys.hmac_of("9999")) is None
    first = keys.credential(SCRAM_SHA_256, "9999")
    assert isinstance(first, ScramCredential)
    assert keys.credential(SCRAM_SHA_256, "9999") is first
    keys.forget_others(fewer)
    assert keys.credential(SCRAM_SHA_256, "9999") is not first
