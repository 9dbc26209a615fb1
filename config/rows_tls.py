"""Broker keys of TLS. Each may be set for one listener alone: `listener.name.<name>.ssl...`."""

from __future__ import annotations

from klamm.config.definitions import ConfigKey, Type
from klamm.config.validators import OneOf, Range, Words

K = ConfigKey
BOOLEAN, STRING, INT, LIST = Type.BOOLEAN, Type.STRING, Type.INT, Type.LIST
CLASS, PASSWORD = Type.CLASS, Type.PASSWORD
FORMATS = "JKS, PKCS12 or PEM. What a file begins with decides between JKS and PKCS12, as in Java."

ROWS = (
    K("ssl.keystore.type", STRING, "JKS", f"The format of the keystore: {FORMATS}", dynamic="per-broker"),
    K("ssl.keystore.location", STRING, None, "The file with the broker's key and certificate. When it changes on the "
      "disk, connections that come from then on get the new one.", dynamic="per-broker"),
    K("ssl.keystore.password", PASSWORD, None, "Opens the keystore. JKS and PKCS12 need it, PEM has none."),
    K("ssl.key.password", PASSWORD, None, "Opens the key, when that is not the keystore's password; of PEM, an "
      "encrypted key."),
    K("ssl.keystore.key", PASSWORD, None, "The broker's key itself in PEM (PKCS#8), in place of a file."),
    K("ssl.keystore.certificate.chain", PASSWORD, None, "Its certificate in PEM, and those between it and the "
      "authority."),
    K("ssl.truststore.type", STRING, "JKS", f"The format of the truststore: {FORMATS}", dynamic="per-broker"),
    K("ssl.truststore.location", STRING, None, "The file with the certificates that clients' certificates must be "
      "signed by. Without a truststore, ssl.client.auth can only be none.", dynamic="per-broker"),
    K("ssl.truststore.password", PASSWORD, None, "Opens the truststore. A JKS truststore can be read without, "
      "unchecked."),
    K("ssl.truststore.certificates", PASSWORD, None, "The certificates themselves in PEM, in place of a file."),
    K("ssl.client.auth", STRING, "none", "Whether a client must show a certificate: required, requested or none. "
      "Without one it is User:ANONYMOUS. On a SASL_SSL listener only the key with the listener's prefix counts.",
      OneOf(("required", "requested", "none"))),
    K("ssl.enabled.protocols", LIST, ["TLSv1.2", "TLSv1.3"], "The protocol versions that clients may use. Older ones "
      "are never opened.", Words()),
    K("ssl.protocol", STRING, "TLSv1.3", "The newest protocol of the broker's own connections to others.",
      status="later"),
    K("ssl.cipher.suites", LIST, [], "The cipher suites that clients may use, by their names in Java; empty: those "
      "with authenticated encryption and forward secrecy. Without one of TLS 1.3 there is no TLS 1.3.", Words()),
    K("ssl.principal.mapping.rules", STRING, "DEFAULT", "From the name in a client's certificate to that of the user: "
      "`RULE:pattern/replacement/[LU]` or DEFAULT, separated by commas; the first that matches holds.",
      importance="low"),
    K("ssl.allow.dn.changes", BOOLEAN, False, "Let a new certificate of the broker have another name.",
      importance="low"),
    K("ssl.allow.san.changes", BOOLEAN, False, "Let a new certificate of the broker lack a host name that the old one "
      "had.", importance="low"),
    K("ssl.endpoint.identification.algorithm", STRING, "https", "Check the names of other brokers in their "
      "certificates; empty: do not.", importance="low", status="later"),
    K("ssl.provider", STRING, None, "A Java class.", status="no use"),
    K("ssl.keymanager.algorithm", STRING, "SunX509", "A Java class.", status="no use"),
    K("ssl.trustmanager.algorithm", STRING, "PKIX", "A Java class.", status="no use"),
    K("ssl.secure.random.implementation", STRING, None, "A Java class.", importance="low", status="no use"),
    K("ssl.engine.factory.class", CLASS, None, "A Java class that makes TLS connections.", importance="low",
      refuse="Java classes cannot run here, and connections would be made by other rules"),
    K("klamm.ssl.reload.interval.ms", INT, 10000, "How often the files of keystores and truststores are looked at for "
      "changes; SIGHUP looks at once. 0: only SIGHUP.", Range(0)),
    K("klamm.ssl.allowed.paths", LIST, [], "Directories below which a dynamic config may name keystores and "
      "truststores. Files that the broker's own file names are always allowed."),
    K("klamm.handshakes.per.turn", INT, 4, "How many steps of TLS handshakes are taken before other connections get "
      "their turn.", Range(1)),
)  # fmt: skip
