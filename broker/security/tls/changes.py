"""Whether new stores may replace the ones in use, by Kafka's rules: clients that know the old certificate must be able
to know the new one, and brokers with either must understand each other."""

from __future__ import annotations

import ssl
from contextlib import suppress

from klamm.broker.security.tls.endpoint import TlsEndpoint
from klamm.broker.security.tls.material import load_key
from klamm.broker.security.tls.store import BadStore


def check_change(old: TlsEndpoint, new: TlsEndpoint, *, between_brokers: bool) -> None:
    """Raise BadStore when `new` may not replace `old`. `between_brokers`: brokers speak to each other here."""
    _check_chain(old, new)
    if old.material.trusted is None and new.material.trusted is not None:
        raise BadStore("a truststore cannot be added while the broker runs")
    if between_brokers and old.material.trusted is not None:
        for server, client in ((old, new), (new, old)):
            _check_handshake(server, client)


def _check_chain(old: TlsEndpoint, new: TlsEndpoint) -> None:
    before, after = old.material.own, new.material.own
    if before.subject != after.subject and not new.settings.allow_dn_changes:
        raise BadStore(
            f"the new certificate is for {after.subject_name} and the old one for {before.subject_name}; "
            "ssl.allow.dn.changes=true allows that"
        )
    lost = before.subject_alternative_names - after.subject_alternative_names
    if lost and not new.settings.allow_san_changes:
        names = ", ".join(sorted(name for _, name in lost))
        raise BadStore(f"the new certificate lacks {names} of the old one; ssl.allow.san.changes=true allows that")


def _check_handshake(server: TlsEndpoint, client: TlsEndpoint) -> None:
    """Let a broker with one endpoint call one with the other, in memory."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = (
        client_context(client).wrap_bio(to_client, to_server),
        server.context.wrap_bio(to_server, to_client, server_side=True),
    )
    try:
        for _ in range(4):  # flights
            for end in ends:
                with suppress(ssl.SSLWantReadError):
                    end.do_handshake()
    except ssl.SSLError as error:
        raise BadStore(f"brokers with the old and the new stores would not trust each other: {error.reason}") from None


def client_context(endpoint: TlsEndpoint) -> ssl.SSLContext:
    """The context with which this broker calls others, names left unchecked."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    material = endpoint.material
    assert material.trusted is not None
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    context.load_verify_locations(cadata=b"".join(material.trusted))
    load_key(context, endpoint.settings, material)
    return context
