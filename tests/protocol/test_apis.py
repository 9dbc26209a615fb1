from __future__ import annotations

import subprocess
import sys

import pytest

from klamm.protocol.apis import API, ApiKey, request_class, response_class


@pytest.mark.parametrize("key", sorted(API))
def test_request_and_response_belong_together(key: int) -> None:
    request, response = request_class(key), response_class(key)
    assert (request.api_key, request.kind) == (key, "request")
    assert (response.api_key, response.kind) == (key, "response")
    assert request.versions == response.versions
    assert request.flexible == response.flexible
    assert request.__name__.removesuffix("Request") == response.__name__.removesuffix("Response") == API[key].name


def test_unknown_keys_are_key_errors() -> None:
    assert 5 not in API  # StopReplica, gone from brokers
    with pytest.raises(KeyError):
        request_class(5)
    with pytest.raises(ValueError, match="9999"):
        ApiKey(9999)


def test_messages_are_imported_on_first_use() -> None:
    program = (
        "import sys, klamm.protocol.apis as a; a.request_class(3);"
        "print(*sorted(m for m in sys.modules if m.startswith('klamm.protocol.messages.')))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["klamm.protocol.messages.metadata"]
