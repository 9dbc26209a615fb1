"""Broker keys of OAUTHBEARER. Each may have the prefix `listener.name.<listener>.oauthbearer.`."""

from __future__ import annotations

from klamm.config.definitions import ConfigKey, Type
from klamm.config.validators import Words

K = ConfigKey
BOOLEAN, STRING, INT, LONG, LIST, CLASS = Type.BOOLEAN, Type.STRING, Type.INT, Type.LONG, Type.LIST, Type.CLASS
JAVA = "org.apache.kafka.common.security.oauthbearer."

OAUTH = (
    K("sasl.server.callback.handler.class", CLASS, None, "How logins are checked. For OAUTHBEARER it is "
      f"`{JAVA}OAuthBearerValidatorCallbackHandler`: tokens are signed. Other Java classes are refused."),
    K("sasl.oauthbearer.jwks.endpoint.url", STRING, None, "Where the keys of the tokens' issuer are: https://, http:// "
      "or file://. A thread fetches them; a failed fetch keeps the old ones."),
    K("sasl.oauthbearer.jwks.endpoint.refresh.ms", LONG, 3600000, "How often they are fetched. A token of an "
      "unknown key has them fetched at once, at most once in a minute.", importance="low"),
    K("sasl.oauthbearer.jwks.endpoint.retry.backoff.ms", LONG, 100, "The pause after a fetch that failed; it doubles.",
      importance="low"),
    K("sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms", LONG, 10000, "The longest such pause.", importance="low"),
    K("sasl.login.connect.timeout.ms", INT, None, "How long a fetch may take to connect; 10 seconds when not set.",
      importance="low"),
    K("sasl.login.read.timeout.ms", INT, None, "How long a fetch may wait for bytes, and half of its total time limit; "
      "10 seconds when not set.", importance="low"),
    K("sasl.oauthbearer.expected.audience", LIST, [], "A token must be for one of these (`aud`).",
      Words(), importance="high"),
    K("sasl.oauthbearer.expected.issuer", STRING, None, "A token must be from this issuer (`iss`).", importance="high"),
    K("sasl.oauthbearer.allow.unverified.audience", BOOLEAN, False, "Start without an expected audience."),
    K("sasl.oauthbearer.allow.unverified.issuer", BOOLEAN, False, "Start without an expected issuer."),
    K("sasl.oauthbearer.clock.skew.seconds", INT, 30, "By how much the clocks of issuer and broker may differ.",
      importance="low"),
    K("sasl.oauthbearer.scope.claim.name", STRING, "scope", "The claim with the scopes.", importance="low"),
    K("sasl.oauthbearer.sub.claim.name", STRING, "sub", "The claim that names the user.", importance="low"),
    K("sasl.oauthbearer.jwt.validator.class", CLASS, f"{JAVA}DefaultJwtValidator", "Kafka's class that checks tokens; "
      "DefaultJwtValidator and BrokerJwtValidator do the same here. Others are refused."),
    K("klamm.sasl.oauthbearer.unsecured", BOOLEAN, False, "Take unsigned tokens, as Kafka does without a callback "
      "handler: for tests, and only on the loopback."),
)  # fmt: skip

ROWS = OAUTH
