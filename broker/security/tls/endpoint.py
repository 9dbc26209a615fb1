"""What a listener with TLS has at the moment; it is replaced as a whole when its stores or settings change."""

from __future__ import annotations

import ssl
from dataclasses import dataclass

from klamm.broker.security.tls.material import Material, ReadFile, load_material, server_context
from klamm.broker.security.tls.peer import Refused, principal
from klamm.broker.security.tls.principal_rules import PrincipalRules
from klamm.broker.security.tls.settings import TlsSettings


@dataclass(frozen=True, slots=True)
class TlsEndpoint:
    """`context` makes the connections, `principal` says which user a peer is."""

    settings: TlsSettings
    material: Material
    context: ssl.SSLContext
    rules: PrincipalRules

    def principal(self, tls: ssl.SSLObject) -> str:
        """Return the user after the handshake, `Type:name`. Raises Refused."""
        self._check_suite(tls)
        return principal(tls, self.rules)

    def _check_suite(self, tls: ssl.SSLObject) -> None:
        """Refuse a suite of TLS 1.3 that is not among `ssl.cipher.suites`: OpenSSL cannot be kept from it here."""
        suites, suite = self.settings.cipher_suites, tls.cipher()
        assert suite is not None
        if suites is not None and tls.version() == "TLSv1.3" and suite[0] not in suites:
            raise Refused(f"{suite[0]} is not among ssl.cipher.suites")


def open_endpoint(settings: TlsSettings, read_file: ReadFile) -> TlsEndpoint:
    """Read the stores and make a context of them. Blocks; raises BadStore."""
    material = load_material(settings, read_file)
    return TlsEndpoint(settings, material, server_context(settings, material), PrincipalRules(settings.principal_rules))
