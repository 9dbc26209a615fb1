"""The gate of a listener where clients log in: authenticators over the users that the metadata have now."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from klamm.broker.controller.credentials import SECRET_BYTES, secret_of
from klamm.broker.network.login import LoginGate
from klamm.broker.security.sasl.authenticator import Authenticator
from klamm.broker.security.sasl.scram import ScramUsers

if TYPE_CHECKING:
    from klamm.broker.controller.controller import Controller
    from klamm.broker.network.network import Network
    from klamm.broker.security.sasl.settings import SaslSettings
    from klamm.protocol.scram import ScramCredential, ScramMechanism


def login_gate(network: Network, controller: Controller, settings: SaslSettings) -> LoginGate:
    """Return the gate of a listener with these settings. Blocks a little; raises KafkaStorageError."""
    secret = b""
    if settings.scram:
        secret = controller.with_store_now(lambda store: secret_of(store, os.urandom(SECRET_BYTES)))

    def scram_users(mechanism: ScramMechanism) -> ScramUsers:
        def find(user: str) -> ScramCredential | None:
            return controller.image.scram.get((user, mechanism.number))

        return ScramUsers(mechanism, find, secret, os.urandom)

    mechanisms = settings.mechanisms(scram_users)
    return LoginGate(network, lambda: Authenticator(mechanisms), settings.max_frame_bytes)
