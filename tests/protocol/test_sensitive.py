"""Fields that carry a secret are hidden from every repr, and so from logs and error texts."""

from __future__ import annotations

import importlib
import pkgutil

import pytest

import klamm.protocol.cluster_metadata as records
import klamm.protocol.messages as messages
from klamm.protocol.fields import Struct, specs
from klamm.protocol.messages.create_topics import CreatableTopicConfig
from klamm.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from klamm.protocol.messages.renew_delegation_token import RenewDelegationTokenRequest
from klamm.protocol.messages.sasl_authenticate import SaslAuthenticateRequest

SECRET_NAMES = {"auth_bytes", "salted_password", "salt", "hmac", "stored_key", "server_key"}


def declared() -> list[type[Struct]]:
    found = []
    for package in (messages, records):
        for info in pkgutil.iter_modules(package.__path__):
            module = importlib.import_module(f"{package.__name__}.{info.name}")
            found += [value for value in vars(module).values() if isinstance(value, type) and issubclass(value, Struct)]
    return [cls for cls in found if cls.__slots__]


def test_each_field_with_the_name_of_a_secret_is_sensitive() -> None:
    seen = set()
    for cls in declared():
        for spec in specs(cls):
            if spec.name in SECRET_NAMES:
                assert spec.sensitive, f"{cls.__name__}.{spec.name}"
                seen.add(spec.name)
    assert seen == SECRET_NAMES


@pytest.mark.parametrize(
    "message",
    [
        SaslAuthenticateRequest(auth_bytes=b"\0user\0MARK"),
        RenewDelegationTokenRequest(hmac=b"MARK", renew_period_ms=1),
        CreatableTopicConfig(name="k", value="MARK"),
        IncrementalAlterConfigsRequest(
            resources=[
                AlterConfigsResource(
                    resource_type=4,
                    resource_name="1",
                    configs=[AlterableConfig(name="ssl.key.password", config_operation=0, value="MARK")],
                )
            ],
            validate_only=False,
        ),
    ],
    ids=lambda message: type(message).__name__,
)
def test_the_repr_hides_the_secret(message: Struct) -> None:
    assert "MARK" not in repr(message)
    assert "[hidden]" in repr(message)


def test_an_absent_secret_is_shown_as_absent() -> None:
    assert repr(CreatableTopicConfig(name="k", value=None)) == "CreatableTopicConfig(name='k', value=None)"
