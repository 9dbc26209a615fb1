"""The config of one listener.

The value of a key is the first one set of `listener.name.<listener>.<mechanism>.<key>` (if a SASL mechanism is given),
`listener.name.<listener>.<key>` and `<key>`; names of listeners and mechanisms are lower case there. If none is set,
the key's default holds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from klamm.config.broker_keys import LISTENER_PREFIX

if TYPE_CHECKING:
    from klamm.config.broker_config import BrokerConfig
    from klamm.config.definitions import Value


class ListenerConfig:
    """A `BrokerConfig` for one listener, and for one of its SASL mechanisms if `mechanism` is given."""

    __slots__ = ("_config", "_prefixes", "name")

    def __init__(self, config: BrokerConfig, name: str, mechanism: str = "") -> None:
        self.name: Final = name
        self._config = config
        prefix = f"{LISTENER_PREFIX}{name.lower()}."
        self._prefixes = (f"{prefix}{mechanism.lower()}.", prefix) if mechanism else (prefix,)

    def set_name(self, key: str) -> str:
        """Return the name under which `key` is set for this listener: the prefixed one, or `key` itself."""
        return self.prefixed_name(key) or key

    def prefixed_name(self, key: str) -> str | None:
        """Return the name with a prefix of this listener under which `key` is set, None when there is none."""
        names = (prefix + key for prefix in self._prefixes)
        return next((name for name in names if self._config.is_set(name)), None)

    def is_set(self, key: str) -> bool:
        return self._config.is_set(self.set_name(key))

    def __getitem__(self, key: str) -> Value:
        return self._config[self.set_name(key)]

    def integer(self, key: str) -> int:
        return self._config.integer(self.set_name(key))

    def text(self, key: str) -> str:
        return self._config.text(self.set_name(key))

    def flag(self, key: str) -> bool:
        return self._config.flag(self.set_name(key))


def listener_config(config: BrokerConfig, name: str, mechanism: str = "") -> ListenerConfig:
    """Return the config of the listener `name`. Its keys may be set for one `mechanism` alone."""
    return ListenerConfig(config, name, mechanism)
