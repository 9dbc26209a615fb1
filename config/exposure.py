"""Settings that let strangers in: each gets a warning, and with `klamm.security.strict` a refusal."""

from __future__ import annotations

import ipaddress

from klamm.config.broker_config import BrokerConfig
from klamm.config.definitions import ConfigError


def is_loopback(host: str) -> bool:
    """Return whether only this machine reaches a socket that is bound to `host`; an empty one is all interfaces."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]").partition("%")[0]).is_loopback
    except ValueError:
        return False


def exposures(config: BrokerConfig) -> list[str]:
    """Return a line for each exposure, with its remedy."""
    return [*_listeners(config), *_authorizer(config), *_metrics(config)]


def check_exposures(config: BrokerConfig) -> list[str]:
    """Return the warnings of `exposures`. Raises `ConfigError` if there are some and the config is strict."""
    found = exposures(config)
    if found and config.flag("klamm.security.strict"):
        raise ConfigError(f"klamm.security.strict: {found[0]}")
    return found


def _listeners(config: BrokerConfig) -> list[str]:
    if config.text("authorizer.class.name"):
        return []
    return [
        f"listeners: everybody who reaches {listener} may read, write and delete everything; use SSL or SASL_SSL with "
        f"an authorizer, or bind it to 127.0.0.1"
        for listener in config.listeners
        if listener.protocol == "PLAINTEXT" and not is_loopback(listener.host)
    ]


def _authorizer(config: BrokerConfig) -> list[str]:
    if not config.text("authorizer.class.name"):
        return []
    found = []
    if not config["super.users"]:
        found.append("super.users: not set, so nobody may create the first ACL; name an administrator, as User:admin")
    if config.flag("allow.everyone.if.no.acl.found"):
        found.append(
            "allow.everyone.if.no.acl.found=true: resources without ACLs are open to everybody; set it to false"
        )
    return found


def _metrics(config: BrokerConfig) -> list[str]:
    listener = config.text("klamm.metrics.listener")
    host = listener.rpartition(":")[0]
    if listener.strip().lower() == "none" or is_loopback(host) or config.text("klamm.metrics.auth") != "none":
        return []
    problem = "everybody who reaches it reads the names of topics; set klamm.metrics.auth, or bind it to 127.0.0.1"
    return [f"klamm.metrics.listener={listener}: {problem}"]
