"""The definition of a config key: its type, its limits, and how its text is read and shown.

Types and their numbers are those of DescribeConfigs. A validator's `str` is the text of Kafka's own documentation and
error messages (`[0,...]`, `[1,...,9]`), so a test can compare the two. Reading follows Java: `1_000` is no number,
`TRUE` is a boolean, spaces around a value do not count.
"""

from __future__ import annotations

import math
import re
from enum import IntEnum
from typing import Final, Literal, NamedTuple, Protocol

Value = bool | int | float | str | list[str] | None
Mode = Literal["read-only", "per-broker", "cluster-wide"]
Importance = Literal["high", "medium", "low"]
Status = Literal["works", "later", "no use"]

INT_MAX: Final = 2**31 - 1
LONG_MAX: Final = 2**63 - 1
DOUBLE_MAX: Final = 1.7976931348623157e308


class ConfigError(ValueError):
    """A setting that cannot be used. The message is one line: the key, the value, and what would be right."""


class Type(IntEnum):
    """The type of a value; the numbers are `ConfigEntry.Type` on the wire (DescribeConfigs v3+)."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9


class Source(IntEnum):
    """The source of a value; the numbers are `ConfigSource` on the wire (DescribeConfigs v1+)."""

    TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_DEFAULT_BROKER = 3
    STATIC_BROKER = 4
    DEFAULT = 5
    BROKER_LOGGER = 6
    GROUP = 8


class Validator(Protocol):
    """The check of a typed value: `problem` returns the error, or `None`."""

    def problem(self, value: Value) -> str | None: ...


_WIDTH: Final = {Type.SHORT: 15, Type.INT: 31, Type.LONG: 63}
_INTEGER: Final = re.compile(r"[+-]?[0-9]+", re.ASCII)
_DOUBLE: Final = re.compile(r"[+-]?(NaN|Infinity|([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?[fFdD]?)", re.ASCII)
_COMMA: Final = re.compile(r"\s*,\s*")


class ConfigKey(NamedTuple):
    """One row of the tables in `broker_keys` and `topic_keys`.

    `status` tells whether Klamm acts on the key: "works"; "later" (stored and reported, its function is not built); "no
    use" (it tunes machinery that Klamm does not have, such as thread pools or a KRaft quorum).
    `refuse` is the reason why any value but the default, and those it `accepts`, is refused: ignoring it would lose
    data or security.
    `fallbacks` are the keys used, in this order, with their factor, when this one is not set.
    """

    name: str
    type: Type
    default: Value
    doc: str
    validator: Validator | None = None
    dynamic: Mode = "read-only"
    importance: Importance = "medium"
    status: Status = "works"
    refuse: str = ""
    fallbacks: tuple[tuple[str, int], ...] = ()
    accepts: tuple[Value, ...] = ()

    @property
    def sensitive(self) -> bool:
        """Return whether the value is never shown in logs or responses."""
        return self.type is Type.PASSWORD

    def parse(self, text: str) -> Value:
        """Return the typed and checked value of `text`. Raises `ConfigError` in Kafka's words."""
        try:
            value = parse(self.type, text)
        except ValueError as error:
            raise ConfigError(f"Invalid value {self.shown(text)} for configuration {self.name}: {error}") from None
        self.check(value)
        return value

    def check(self, value: Value) -> None:
        """Check a typed value with the validator."""
        problem = self.validator.problem(value) if self.validator is not None else None
        if problem is not None:
            raise ConfigError(f"Invalid value {self.shown(to_text(value))} for configuration {self.name}: {problem}")

    def shown(self, text: str | None) -> str | None:
        return "[hidden]" if self.sensitive and text else text


def parse(kind: Type, text: str) -> Value:
    """Read `text` as Java's `ConfigDef.parseType` does. Raises `ValueError` with the expected form."""
    if kind is Type.PASSWORD:
        return text
    text = text.strip()
    if kind is Type.STRING or kind is Type.CLASS:
        return text
    if kind is Type.LIST:
        return _COMMA.split(text) if text else []
    if kind is Type.BOOLEAN:
        lowered = text.lower()
        if lowered not in ("true", "false"):
            raise ValueError("Expected value to be either true or false")
        return lowered == "true"
    if kind is Type.DOUBLE:
        if _DOUBLE.fullmatch(text) is None:
            raise ValueError("Not a number of type DOUBLE")
        return float(text.rstrip("fFdD"))
    bound = 1 << _WIDTH[kind]
    if _INTEGER.fullmatch(text) is None or not -bound <= (number := int(text)) < bound:
        raise ValueError(f"Not a number of type {kind.name}")
    return number


def to_text(value: Value) -> str | None:
    """Return the text that Kafka shows for a typed value."""
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list):
        return ",".join(value)
    if isinstance(value, float):
        return _java_double(value)
    return str(value)


def _java_double(value: float) -> str:
    """Format as `Double.toString`: scientific below 1e-3 and from 1e7 on, with a capital E, always with a fraction."""
    if not math.isfinite(value):
        return {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}[str(value)]
    if value == 0 or 1e-3 <= abs(value) < 1e7:
        return repr(value) if "e" not in repr(value) else f"{value:f}"
    digits = repr(value).lower()
    if "e" not in digits:
        digits = f"{value:.17e}"
        for precision in range(17):
            if float(f"{value:.{precision}e}") == value:
                digits = f"{value:.{precision}e}"
                break
    mantissa, _, exponent = digits.partition("e")
    return f"{mantissa if '.' in mantissa else mantissa + '.0'}E{int(exponent)}"
