"""Tokens and key sets for tests, good and hostile, and a small HTTP server for the latter."""

from __future__ import annotations

import base64
import hmac
import json
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from joserfc import jws
from joserfc.jwk import ECKey, OKPKey, RSAKey

NOW_S = 1_700_000_000
CLAIMS: Mapping[str, Any] = {
    "sub": "alice",
    "iss": "https://issuer",
    "aud": "kafka",
    "iat": NOW_S - 5,
    "exp": NOW_S + 300,
}
RSA = RSAKey.generate_key(2048)
OTHER_RSA = RSAKey.generate_key(2048)
EC = ECKey.generate_key("P-256")
ED = OKPKey.generate_key("Ed25519")


def b64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def token(claims: Mapping[str, Any] | bytes = CLAIMS, key: Any = RSA, header: Mapping[str, Any] | None = None) -> str:
    """A signed token; `header` replaces the usual one."""
    payload = claims if isinstance(claims, bytes) else json.dumps(dict(claims)).encode()
    full = {"alg": "RS256", "kid": "rsa"} if header is None else dict(header)
    return jws.serialize_compact(full, payload, key, algorithms=[full["alg"]])


def unsigned(header: Mapping[str, Any], claims: Mapping[str, Any] = CLAIMS, signature: bytes = b"") -> str:
    return f"{b64(json.dumps(dict(header)).encode())}.{b64(json.dumps(dict(claims)).encode())}.{b64(signature)}"


def hmac_with_public_key() -> str:
    """HS256 with the public key as the secret: the oldest trick."""
    signed = unsigned({"alg": "HS256", "kid": "rsa"}).rpartition(".")[0]
    return f"{signed}.{b64(hmac.digest(RSA.as_pem(private=False), signed.encode(), 'sha256'))}"


def jwk(key: Any, kid: str | None, **more: Any) -> dict[str, Any]:
    return {**key.as_dict(private=False), **({"kid": kid} if kid is not None else {}), **more}


def jwks(*keys: dict[str, Any]) -> bytes:
    return json.dumps({"keys": list(keys)}).encode()


GOOD_SET = jwks(jwk(RSA, "rsa"), jwk(EC, "ec"), jwk(ED, "ed"))


class _Handler(BaseHTTPRequestHandler):
    answer: Callable[[BaseHTTPRequestHandler], None]

    def do_GET(self) -> None:
        try:
            type(self).answer(self)
        except OSError:
            self.close_connection = True  # the client had enough

    def log_message(self, *_: object) -> None:
        """Be quiet."""


@contextmanager
def http_server(answer: Callable[[BaseHTTPRequestHandler], None]) -> Iterator[str]:
    """Serve each GET with `answer`; yields the URL."""
    handler = type("Handler", (_Handler,), {"answer": staticmethod(answer)})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/keys"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def body(data: bytes, status: int = 200, **headers: str) -> Callable[[BaseHTTPRequestHandler], None]:
    """An answer with this body."""

    def answer(request: BaseHTTPRequestHandler) -> None:
        request.send_response(status)
        for name, value in {"content_length": str(len(data)), **headers}.items():
            request.send_header(name.replace("_", "-"), value)
        request.end_headers()
        request.wfile.write(data)

    return answer
