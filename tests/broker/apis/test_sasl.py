"""SASL on a listener without it is refused by name."""

from __future__ import annotations

import pytest

from klamm.protocol.errors import ErrorCode
from klamm.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from klamm.protocol.messages.sasl_handshake import SaslHandshakeRequest
from tests.support.embedded import EmbeddedBroker


@pytest.mark.parametrize("version", [0, 1])
def test_a_handshake_is_refused(broker: EmbeddedBroker, version: int) -> None:
    response = broker.call(SaslHandshakeRequest(mechanism="PLAIN"), version)
    assert (response.error_code, response.mechanisms) == (ErrorCode.ILLEGAL_SASL_STATE, [])


@pytest.mark.parametrize("version", [0, 1, 2])
def test_a_login_is_refused(broker: EmbeddedBroker, version: int) -> None:
    response = broker.call(SaslAuthenticateRequest(auth_bytes=b"\0a\0b"), version)
    assert response.error_code == ErrorCode.ILLEGAL_SASL_STATE and "PLAINTEXT" in response.error_message
