"""Config providers: `${name:path:key}` in a value of the server's own config is replaced by text from another place.

    config.providers=file,env
    config.providers.file.class=org.apache.kafka.common.config.provider.FileConfigProvider
    config.providers.env.class=org.apache.kafka.common.config.provider.EnvVarConfigProvider
    ssl.key.password=${file:/run/secrets/klamm.properties:key.password}

Kafka's three providers are built in, under their Java names: a properties file, a directory with a file for each key,
the environment. `.param.allowed.paths` bounds the first two, `.param.allowlist.pattern` the third. Unlike in Kafka, a
reference that cannot be resolved stops the start: the text `${...}` is never used as a password. Values set at run
time are never resolved, so no client can read a file of the broker.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from klamm.config.definitions import ConfigError
from klamm.config.properties import parse_properties

_REFERENCE: Final = re.compile(r"\$\{([^}:]*):(?:([^}:]*):)?([^}]*)\}")
PREFIX: Final = "config.providers."
_JAVA_PACKAGE: Final = "org.apache.kafka.common.config.provider."
_ALLOW_LIST: Final = "org.apache.kafka.automatic.config.providers"
MOST_BYTES: Final = 1 << 20

Lookup = Callable[[str, str], str]


class Unresolved(Exception):
    """A reference to something that does not exist, or is not allowed. The message never has a value."""


def resolve(values: Mapping[str, str], environ: Mapping[str, str], forget: Callable[[str], object]) -> dict[str, str]:
    """Return `values` with each reference replaced. `forget` is called for each variable that was read.

    Raises `ConfigError`, which names the key and the reference.
    """
    if not any("${" in value for value in values.values()):
        return dict(values)
    providers = _providers(values, environ, forget)
    resolved = {}
    for name, value in values.items():
        try:
            resolved[name] = _REFERENCE.sub(lambda match: _look_up(providers, match), value)
        except Unresolved as error:
            raise ConfigError(f"{name}: {error}") from None
    return resolved


def _look_up(providers: Mapping[str, Lookup], match: re.Match[str]) -> str:
    name, path, key = match[1], match[2] or "", match[3]
    provider = providers.get(name)
    if provider is None:
        raise Unresolved(f"{match[0]} asks a config provider {name!r}, which config.providers does not name")
    try:
        return provider(path, key)
    except Unresolved as error:
        raise Unresolved(f"{match[0]}: {error}") from None
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise Unresolved(f"{match[0]}: {path}: {reason}") from None


def _providers(
    values: Mapping[str, str], environ: Mapping[str, str], forget: Callable[[str], object]
) -> dict[str, Lookup]:
    found: dict[str, Lookup] = {}
    allowed = _allowed_classes(environ)
    for name in filter(None, (item.strip() for item in values.get("config.providers", "").split(","))):
        wanted = values.get(f"{PREFIX}{name}.class", "").strip()
        kind = wanted.removeprefix(_JAVA_PACKAGE)
        if kind not in ("FileConfigProvider", "DirectoryConfigProvider", "EnvVarConfigProvider"):
            raise ConfigError(
                f"{PREFIX}{name}.class={wanted}: there are {_JAVA_PACKAGE}FileConfigProvider, "
                f"DirectoryConfigProvider and EnvVarConfigProvider, no others"
            )
        if allowed is not None and _JAVA_PACKAGE + kind not in allowed:
            raise ConfigError(f"{PREFIX}{name}.class={wanted} is not in {_ALLOW_LIST} of KAFKA_OPTS")
        parameters = f"{PREFIX}{name}.param."
        if kind == "EnvVarConfigProvider":
            found[name] = _environment(environ, values.get(parameters + "allowlist.pattern"), parameters, forget)
        else:
            bounds = _Bounds(values.get(parameters + "allowed.paths"), parameters)
            found[name] = bounds.from_file if kind == "FileConfigProvider" else bounds.from_directory
    return found


def _allowed_classes(environ: Mapping[str, str]) -> set[str] | None:
    """Return the classes that the process allows; None when it does not say."""
    match = re.search(rf"(?:^|\s)-D{re.escape(_ALLOW_LIST)}=(\S*)", environ.get("KAFKA_OPTS", ""))
    return {item.strip() for item in match[1].split(",")} if match is not None else None


class _Bounds:
    """The paths that a provider may read below; any when none are given."""

    def __init__(self, text: str | None, parameters: str) -> None:
        self._allowed: list[Path] | None = None
        if text is None:
            return
        self._allowed = []
        for item in filter(None, (item.strip() for item in text.split(","))):
            path = Path(item)
            if not path.is_absolute() or not path.exists():
                raise ConfigError(f"{parameters}allowed.paths: {item} is no absolute path of something that exists")
            self._allowed.append(path.resolve())

    def _checked(self, path: Path) -> Path:
        """Return the path without links and `..`, after a check that it is allowed."""
        real = path.resolve()
        if self._allowed is not None and not any(real.is_relative_to(allowed) for allowed in self._allowed):
            raise Unresolved(f"{path} is not below allowed.paths")
        return real

    def from_file(self, path: str, key: str) -> str:
        """Return the value of `key` in the properties file `path`."""
        if not path:
            raise Unresolved("it must be ${name:/path/of/file:key}")
        values = parse_properties(_read(self._checked(Path(path))))
        if key not in values:
            raise Unresolved(f"{path} has no key {key}")
        return values[key]

    def from_directory(self, path: str, key: str) -> str:
        """Return the text of the file `key` in the directory `path`."""
        if not path or "/" in key or key in ("", ".", ".."):
            raise Unresolved("it must be ${name:/path/of/directory:file}")
        return _read(self._checked(Path(path) / key))


def _environment(
    environ: Mapping[str, str], pattern: str | None, parameters: str, forget: Callable[[str], object]
) -> Lookup:
    try:
        allowed = re.compile(pattern if pattern is not None else ".*", re.DOTALL)
    except re.error as error:
        raise ConfigError(f"{parameters}allowlist.pattern={pattern}: {error}") from None

    def look_up(path: str, key: str) -> str:
        if path:
            raise Unresolved("it must be ${name:VARIABLE}")
        if allowed.fullmatch(key) is None:
            raise Unresolved(f"{key} does not match allowlist.pattern")
        if key not in environ:
            raise Unresolved(f"there is no variable {key}")
        forget(key)
        return environ[key]

    return look_up


def _read(path: Path) -> str:
    with path.open("rb") as file:
        data = file.read(MOST_BYTES + 1)
    if len(data) > MOST_BYTES:
        raise Unresolved(f"{path} has more than {MOST_BYTES} bytes")
    return data.decode()
