"""The gate of a listener where clients log in: authenticators over the users that the metadata have now."""

from __future__ import annotations

import os
from collections.abc import Callable
from threading import Thread
from typing import TYPE_CHECKING

from klamm.broker.controller.credentials import SECRET_BYTES, secret_of
from klamm.broker.network.login import LoginGate, nothing
from klamm.broker.security.sasl.authenticator import Authenticator
from klamm.broker.security.sasl.oauth.claims import check_unsecured
from klamm.broker.security.sasl.scram import Lent, ScramUsers

if TYPE_CHECKING:
    from klamm.broker.controller.controller import Controller
    from klamm.broker.network.network import Network
    from klamm.broker.security.sasl.oauth.bearer import Check
    from klamm.broker.security.sasl.oauth.settings import OAuthSettings
    from klamm.broker.security.sasl.settings import SaslSettings
    from klamm.broker.security.tokens import TokenKeys
    from klamm.protocol.scram import ScramCredential, ScramMechanism


def login_gate(
    network: Network, controller: Controller, settings: SaslSettings, token_keys: TokenKeys | None = None
) -> LoginGate:
    """Return the gate of a listener with these settings. Blocks a little; raises KafkaStorageError."""
    if token_keys is not None and settings.scram and controller.image.tokens:
        Thread(target=token_keys.prepare, args=(list(controller.image.tokens),), daemon=True).start()
    secret = b""
    if settings.scram:
        secret = controller.with_store_now(lambda store: secret_of(store, os.urandom(SECRET_BYTES)))

    def scram_users(mechanism: ScramMechanism) -> ScramUsers:
        def find(user: str) -> ScramCredential | None:
            return controller.image.scram.get((user, mechanism.number))

        def find_token(token_id: str) -> Lent | None:
            token = controller.image.tokens.get(token_id)
            left_ms = token.expiry_ms - network.clock.wall_ms() if token is not None else 0
            if token is None or token_keys is None or left_ms <= 0:
                return None
            return Lent(token.owner.partition(":")[2], left_ms, token_keys.credential(mechanism, token_id))

        return ScramUsers(mechanism, find, secret, os.urandom, find_token)

    check, stop = _token_check(settings.oauth, network) if settings.oauth is not None else (None, nothing)
    mechanisms = settings.mechanisms(scram_users, check)
    return LoginGate(network, lambda: Authenticator(mechanisms), settings.max_frame_bytes, stop=stop)


def _token_check(settings: OAuthSettings, network: Network) -> tuple[Check, Callable[[], None]]:
    """Return the check of tokens, and what ends the thread that keeps their keys fresh."""
    clock, expected = network.clock, settings.expected

    def wall_s() -> float:
        return clock.wall_ms() / 1000

    if settings.source is None:
        return lambda token: check_unsecured(token, expected, wall_s()), nothing
    from klamm.broker.key_fetching import KeyFetcher  # with joserfc, which few brokers need
    from klamm.broker.security.sasl.oauth.keys import Keys
    from klamm.broker.security.sasl.oauth.validation import SignedTokens

    keys = Keys()
    fetcher = KeyFetcher(settings.source, keys.replace)
    tokens = SignedTokens(expected, keys, refresh=fetcher.wake, wall_s=wall_s, monotonic_s=clock.monotonic)
    fetcher.start()
    return tokens.check, fetcher.stop
