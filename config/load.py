"""The sources of a config: a `server.properties` file, the environment, `--override key=value`; the later wins.

Environment names are those of Apache's container image: `KAFKA_LOG_DIRS` is `log.dirs`, `__` an underscore, `___` a
dash; `KAFKA_CFG_LOG_DIRS` means the same. `CLUSTER_ID` gives a new data directory its cluster id. Variables that the
images use for the JVM and its logging are no config and are left alone.

A value may take text from a config provider (`providers`).

`load` logs nothing itself. `notes` returns lines for the operator: the caller logs each once.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from klamm.config.broker_config import BrokerConfig
from klamm.config.broker_keys import ALIASES, BROKER_KEYS, without_listener
from klamm.config.definitions import ConfigError, Status
from klamm.config.known import DYNAMIC_ONLY, KNOWN, KNOWN_OLD, MOVE_RATE, PLUGIN_PREFIXES
from klamm.config.properties import parse_properties
from klamm.config.providers import PREFIX as PROVIDERS
from klamm.config.providers import resolve
from klamm.config.secrets import holds_secret

_NOT_CONFIG: Final = frozenset(
    """
    HOME OPTS HEAP_OPTS JVM_PERFORMANCE_OPTS GC_LOG_OPTS JMX_OPTS JMX_PORT JMX_HOSTNAME LOG4J_OPTS LOG4J_ROOT_LOGLEVEL
    LOG4J_LOGGERS TOOLS_LOG4J_LOGLEVEL LOG4J_CMD_OPTS LOG4J_LOGGER_LEVELS DEBUG VERSION MODE CLUSTER_ID KRAFT_CLUSTER_ID
    BROKER_ID_COMMAND CLASSPATH DEBUG_SUSPEND_FLAG DATA_DIR CONF_DIR SCALA_VERSION""".split()
)


def load(
    path: str | None,
    overrides: Sequence[str],
    environ: Mapping[str, str],
    *,
    forget: Callable[[str], object] = lambda _: None,
) -> BrokerConfig:
    """Load the broker's config from these sources. `ConfigError` names the source, the key and the mistake.

    `forget` is called for each environment variable that held a secret, so that no child process inherits it.
    """
    found: dict[str, tuple[str, str]] = {}
    if path is not None:
        found.update({name: (value, path) for name, value in _read(path).items()})
    given = _from_environment(environ)
    found.update(given)
    for override in overrides:
        name, equals, value = override.partition("=")
        if not equals or not name.strip():
            raise ConfigError(f"--override {override}: must be key=value")
        found[name.strip()] = (value.strip(), "--override")
    for name, (_, origin) in found.items():
        if not name.startswith("klamm.") or name in BROKER_KEYS:
            continue
        raise ConfigError(f"{origin}: {name} is not a key of Klamm{_nearest(name)}")
    used = [variable for name, (_, variable) in given.items() if _may_be_secret(name)]
    try:
        config = BrokerConfig(resolve({name: value for name, (value, _) in found.items()}, environ, used.append))
    except ConfigError as error:
        raise ConfigError(_with_origin(str(error), found)) from None
    for variable in dict.fromkeys(used):
        forget(variable)
    return config


def _may_be_secret(name: str) -> bool:
    """Return whether the value must not be shown; as in Kafka, that of an unknown key must not."""
    return holds_secret(name) or broker_status(name) is None


def broker_status(name: str) -> Status | None:
    """Return the status of a broker key, with or without a listener's prefix; None for an unknown one."""
    bare = without_listener(name)
    row = BROKER_KEYS.get(bare)
    if row is not None:
        return row.status
    if bare in ALIASES or bare == MOVE_RATE or bare.startswith(PROVIDERS):
        return "works"
    if bare in KNOWN or bare in KNOWN_OLD or bare in DYNAMIC_ONLY or bare.startswith(PLUGIN_PREFIXES):
        return "later"
    return None


def notes(config: BrokerConfig) -> tuple[list[str], list[str]]:
    """Return lines about the given keys for the operator: for INFO and for WARNING."""
    without_use: list[str] = []
    later: list[str] = []
    unknown: list[str] = []
    for name in sorted(config.originals):
        match broker_status(name):
            case "no use":
                without_use.append(name)
            case "later":
                later.append(name)
            case None:
                unknown.append(name)
    infos, warnings = [], []
    if config.controller_listeners:
        closed = ", ".join(str(listener) for listener in config.controller_listeners)
        infos.append(f"{closed} is not opened: it belongs to KRaft's quorum, and Klamm is its own controller")
    if without_use:
        infos.append(f"Not needed by Klamm, stored only: {', '.join(without_use)}")
    if later:
        warnings.append(f"Stored, but without effect yet: {', '.join(later)}")
    warnings.extend(f"Unknown config key {name}{_nearest(name)}; it has no effect" for name in unknown)
    return infos, warnings


def _read(path: str) -> dict[str, str]:
    try:
        with open(path, "rb") as file:
            data = file.read()
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from None
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        text = data.decode("latin-1")
    return parse_properties(text)


def _from_environment(environ: Mapping[str, str]) -> dict[str, tuple[str, str]]:
    found: dict[str, tuple[str, str]] = {}
    cluster_id = environ.get("CLUSTER_ID") or environ.get("KAFKA_CLUSTER_ID") or environ.get("KAFKA_KRAFT_CLUSTER_ID")
    if cluster_id:
        found["klamm.cluster.id"] = (cluster_id, "CLUSTER_ID")
    plain = {}
    for variable, value in environ.items():
        if variable.startswith("KAFKA_CFG_"):
            found[environment_key(variable[len("KAFKA_CFG_") :])] = (value, variable)
        elif variable.startswith("KAFKA_") and variable[len("KAFKA_") :] not in _NOT_CONFIG:
            plain[environment_key(variable[len("KAFKA_") :])] = (value, variable)
    return {**found, **plain}


def environment_key(rest: str) -> str:
    """Return the key of a variable: `LOG_DIRS` -> `log.dirs`; two underscores are one, three a dash."""
    return re.sub(r"_+", lambda run: {1: ".", 2: "_", 3: "-"}.get(len(run[0]), run[0]), rest.lower())


def _nearest(name: str) -> str:
    import difflib

    near = difflib.get_close_matches(name, [*BROKER_KEYS, *KNOWN], 1, 0.75)
    return f"; did you mean {near[0]}?" if near else ""


def _with_origin(problem: str, found: Mapping[str, tuple[str, str]]) -> str:
    named = [name for name in found if re.search(rf"(?<![\w.]){re.escape(name)}(?![\w.]*\w)", problem)]
    return f"{found[max(named, key=len)][1]}: {problem}" if named else problem
