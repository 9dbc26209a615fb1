"""Which files a dynamic config may name: what comes over the network must not make the broker read any file it can."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from klamm.config.broker_config import BrokerConfig
from klamm.config.broker_keys import without_listener
from klamm.config.definitions import ConfigError

LOCATIONS = ("ssl.keystore.location", "ssl.truststore.location")


def check_locations(static: BrokerConfig, config: Mapping[str, str]) -> None:
    """Raise ConfigError for a keystore or truststore that is neither in the broker's own config nor below one of the
    directories of `klamm.ssl.allowed.paths`."""
    for name, path in config.items():
        if without_listener(name) in LOCATIONS and not _is_allowed(static, path):
            raise ConfigError(
                f"{name}: {path!r} is neither in the broker's own file nor below a directory of klamm.ssl.allowed.paths"
            )


def _is_allowed(static: BrokerConfig, path: str) -> bool:
    if any(value == path and without_listener(name) in LOCATIONS for name, value in static.originals.items()):
        return True
    allowed = static["klamm.ssl.allowed.paths"]
    assert isinstance(allowed, list)
    real = Path(os.path.realpath(path))
    return any(real.is_relative_to(os.path.realpath(directory)) for directory in allowed if directory)
